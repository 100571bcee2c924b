//! A part of another device.
//!
//! # Invariants
//! - No call reaches a byte of the other device outside the window.

use std::any::Any;
use std::io::IoSlice;
use std::sync::Arc;

use crate::device::total_len;
use crate::error::check_call;
use crate::{Device, DeviceError, Operation, Trouble};

/// A part of another device, such as a partition.
#[derive(Debug)]
pub struct Window {
    name: String,
    whole: Arc<dyn Device>,
    offset: u64,
    len_bytes: u64,
}

impl Window {
    /// The `len_bytes` of `whole` from `offset` on.
    ///
    /// # Errors
    /// [`DeviceError::PastEnd`] if they do not lie within `whole`.
    pub fn new(
        whole: Arc<dyn Device>,
        name: impl Into<String>,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Self, DeviceError> {
        check_call(whole.as_ref(), Operation::Read, offset, len_bytes)?;
        Ok(Self { name: name.into(), whole, offset, len_bytes })
    }
}

impl Device for Window {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn is_writable(&self) -> bool {
        self.whole.is_writable()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Read, offset, buf.len() as u64)?;
        self.whole.read_at(buf, self.offset + offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Write, offset, total_len(bufs))?;
        self.whole.write_vectored_at(bufs, self.offset + offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.whole.flush()
    }

    fn flushes_in_one_step(&self) -> bool {
        self.whole.flushes_in_one_step()
    }

    fn wants_discards(&self) -> bool {
        self.whole.wants_discards()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.whole.trouble()
    }

    fn particulars(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.whole.particulars()
    }

    fn newer(&self) -> Result<Option<Arc<dyn Device>>, DeviceError> {
        let Some(whole) = self.whole.newer()? else { return Ok(None) };
        let window = Self::new(whole, self.name.clone(), self.offset, self.len_bytes)?;
        Ok(Some(Arc::new(window)))
    }

    fn doubt(&self, offset: u64, len_bytes: u64) -> bool {
        self.whole.doubt(self.offset + offset, len_bytes)
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Discard, offset, len_bytes)?;
        self.whole.discard(self.offset + offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes).min(self.len_bytes);
        if offset < end {
            self.whole.readahead(self.offset + offset, end - offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn window() -> (Arc<MemoryDevice>, Window) {
        let whole = Arc::new(MemoryDevice::new("m", 3000));
        whole.write_at(&[1; 3000], 0).unwrap();
        let window = Window::new(Arc::clone(&whole) as Arc<dyn Device>, "w", 1000, 1000).unwrap();
        (whole, window)
    }

    fn byte(device: &dyn Device, offset: u64) -> u8 {
        let mut byte = [0];
        device.read_at(&mut byte, offset).unwrap();
        byte[0]
    }

    #[test]
    fn calls_reach_the_part_and_nothing_else() {
        let (whole, window) = window();
        window.write_at(&[2; 1000], 0).unwrap();
        for (offset, expected) in [(999, 1), (1000, 2), (1999, 2), (2000, 1)] {
            assert_eq!(byte(whole.as_ref(), offset), expected, "{offset}");
        }
        assert_eq!(byte(&window, 999), 2);
        window.flush().unwrap();
        window.readahead(900, u64::MAX);
        assert_eq!(window.len_bytes(), 1000);
    }

    #[test]
    fn calls_past_the_end_are_refused() {
        let (whole, window) = window();
        let is_past = |outcome: Result<(), DeviceError>| match outcome {
            Err(DeviceError::PastEnd { device, device_len_bytes, .. }) => {
                device == "w" && device_len_bytes == 1000
            }
            _ => false,
        };
        for (offset, len) in [(0, 1001), (999, 2), (1000, 1), (u64::MAX, 2)] {
            assert!(is_past(window.read_at(&mut vec![0; len], offset)), "{offset} {len}");
            assert!(is_past(window.write_at(&vec![2; len], offset)), "{offset} {len}");
            assert!(is_past(window.discard(offset, len as u64)), "{offset} {len}");
        }
        assert_eq!((byte(whole.as_ref(), 999), byte(whole.as_ref(), 2000)), (1, 1));
        let whole = || Arc::clone(&whole) as Arc<dyn Device>;
        assert!(Window::new(whole(), "w", 2000, 1001).is_err());
        assert!(Window::new(whole(), "w", u64::MAX, 1).is_err());
        assert!(Window::new(whole(), "w", 3000, 0).is_ok());
    }
}
