//! Wiping the old content of a device.

use larder_device::{Device, DeviceError};
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};

/// Bytes at either end of a device where other file systems and partition tables have their
/// signatures.
const EDGE_BYTES: u64 = 2 * 1024 * 1024;

/// Discards the device's content if asked to, and zeros every place of a signature. The zeros are
/// durable when this returns.
pub(crate) fn wipe(device: &dyn Device, discard: bool) -> Result<(), DeviceError> {
    let len_bytes = device.len_bytes();
    if discard {
        device.discard(0, len_bytes)?;
    }
    let edge = EDGE_BYTES.min(len_bytes);
    zero(device, 0, edge)?;
    zero(device, len_bytes - edge, edge)?;
    for offset in OFFSETS {
        if offset.0 + SUPERBLOCK_SIZE as u64 <= len_bytes {
            zero(device, offset.0, SUPERBLOCK_SIZE as u64)?;
        }
    }
    device.flush()
}

/// Zeros a range, and keeps zeros as they are: a sparse file stays sparse.
fn zero(device: &dyn Device, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
    const STEP_BYTES: u64 = 64 * 1024;
    let (mut found, zeros) = (vec![0; STEP_BYTES as usize], vec![0; STEP_BYTES as usize]);
    for start in (offset..offset + len_bytes).step_by(STEP_BYTES as usize) {
        let len = STEP_BYTES.min(offset + len_bytes - start) as usize;
        device.read_at(&mut found[..len], start)?;
        if found[..len] != zeros[..len] {
            device.write_at(&zeros[..len], start)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use larder_device::MemoryDevice;

    use super::*;

    #[test]
    fn signatures_are_wiped() {
        let device = MemoryDevice::new("m", 70 << 20);
        device.write_at(&vec![1; 3 << 20], 0).unwrap();
        device.write_at(&[1; 4096], OFFSETS[1].0).unwrap();
        device.write_at(&[1; 100], (70 << 20) - 100).unwrap();
        wipe(&device, false).unwrap();
        for (offset, expected) in
            [(0, 0), (2 << 20, 1), (OFFSETS[0].0, 0), (OFFSETS[1].0, 0), ((70 << 20) - 50, 0)]
        {
            let mut found = [9];
            device.read_at(&mut found, offset).unwrap();
            assert_eq!(found, [expected], "at {offset}");
        }
    }

    #[test]
    fn zeros_are_not_written() {
        let device = MemoryDevice::new("m", 70 << 20);
        wipe(&device, true).unwrap();
        assert_eq!(device.allocated_bytes(), 0);
    }
}
