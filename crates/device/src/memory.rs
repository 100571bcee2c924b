//! A device in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::error::check_call;
use crate::{Device, DeviceError, Operation};

/// The unit of allocation and of sharing between snapshots.
const PAGE_BYTES: usize = 16 * 1024;

type Page = [u8; PAGE_BYTES];

/// Sparse memory: pages that were never written read as zeros and cost nothing.
///
/// [`snapshot`](Self::snapshot) shares pages until either side writes them.
pub struct MemoryDevice {
    name: String,
    content: RwLock<Content>,
}

#[derive(Clone)]
struct Content {
    len_bytes: u64,
    /// Pages by number. Bytes of the last page beyond `len_bytes` are zero.
    pages: BTreeMap<u64, Arc<Page>>,
}

impl MemoryDevice {
    /// A device of `len_bytes` zeros.
    pub fn new(name: impl Into<String>, len_bytes: u64) -> Self {
        let content = RwLock::new(Content { len_bytes, pages: BTreeMap::new() });
        Self { name: name.into(), content }
    }

    /// A device with the same name and content, which changes independently from now on. Copies no
    /// data.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self { name: self.name.clone(), content: RwLock::new(self.content.read().clone()) }
    }

    /// Makes the device longer, with zeros, or shorter.
    pub fn set_len(&self, len_bytes: u64) {
        let mut content = self.content.write();
        if len_bytes < content.len_bytes {
            let discarded = content.len_bytes - len_bytes;
            content.zero(len_bytes, discarded);
        }
        content.len_bytes = len_bytes;
    }

    /// Calls `act` with the offset and the content of each part in which this device may differ
    /// from `other`: all except the pages that the two share, or that neither has.
    pub fn each_difference(&self, other: &Self, mut act: impl FnMut(u64, &[u8])) {
        let (own, others) = (self.content.read().clone(), other.content.read().clone());
        let mut numbers: Vec<u64> = own.pages.keys().chain(others.pages.keys()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let pages = [own.pages.get(&number), others.pages.get(&number)];
            let is_shared = matches!(pages, [Some(own), Some(other)] if Arc::ptr_eq(own, other));
            let offset = number * PAGE_BYTES as u64;
            if !is_shared && offset < own.len_bytes {
                let len = (own.len_bytes - offset).min(PAGE_BYTES as u64) as usize;
                act(offset, pages[0].map_or(&[0; PAGE_BYTES][..len], |page| &page[..len]));
            }
        }
    }

    /// Bytes of memory held by pages, shared ones included.
    pub fn allocated_bytes(&self) -> u64 {
        self.content.read().pages.len() as u64 * PAGE_BYTES as u64
    }
}

impl Content {
    fn read(&self, mut buf: &mut [u8], mut offset: u64) {
        while !buf.is_empty() {
            let (page, range) = piece(offset, buf.len());
            let (head, tail) = buf.split_at_mut(range.len());
            match self.pages.get(&page) {
                Some(bytes) => head.copy_from_slice(&bytes[range]),
                None => head.fill(0),
            }
            offset += head.len() as u64;
            buf = tail;
        }
    }

    fn write(&mut self, mut buf: &[u8], mut offset: u64) {
        while !buf.is_empty() {
            let (page, range) = piece(offset, buf.len());
            let (head, tail) = buf.split_at(range.len());
            let bytes = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(bytes)[range].copy_from_slice(head);
            offset += head.len() as u64;
            buf = tail;
        }
    }

    /// Zeros a range, dropping the pages that lie wholly inside it.
    fn zero(&mut self, offset: u64, len_bytes: u64) {
        let end = offset + len_bytes;
        let page_bytes = PAGE_BYTES as u64;
        let pages: Vec<u64> = self
            .pages
            .range(offset / page_bytes..end.div_ceil(page_bytes))
            .map(|(&n, _)| n)
            .collect();
        for number in pages {
            let start = number * page_bytes;
            let from = offset.saturating_sub(start) as usize;
            let to = (end - start).min(page_bytes) as usize;
            if from == 0 && to == PAGE_BYTES {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                Arc::make_mut(page)[from..to].fill(0);
            }
        }
    }
}

/// The page that holds `offset`, and the part of it that a range of `len` bytes from there covers.
fn piece(offset: u64, len: usize) -> (u64, std::ops::Range<usize>) {
    let page_bytes = PAGE_BYTES as u64;
    let start = (offset % page_bytes) as usize;
    (offset / page_bytes, start..(start + len.min(PAGE_BYTES - start)))
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("name", &self.name)
            .field("len_bytes", &self.len_bytes())
            .finish_non_exhaustive()
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.content.read().len_bytes
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Read, offset, buf.len() as u64)?;
        self.content.read().read(buf, offset);
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], mut offset: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Write, offset, crate::device::total_len(bufs))?;
        let mut content = self.content.write();
        for buf in bufs {
            content.write(buf, offset);
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        check_call(self, Operation::Discard, offset, len_bytes)?;
        self.content.write().zero(offset, len_bytes);
        Ok(())
    }

    fn readahead(&self, _offset: u64, _len_bytes: u64) {}
}
