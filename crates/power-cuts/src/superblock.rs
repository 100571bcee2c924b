//! What cuts do to copies of the superblock.

use larder_device::{Device, Entry, Event, MemoryDevice, Survival};
use larder_format::Superblock;
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};

/// A change that arrives only in its first `sectors` sectors of 512 bytes; not at all, if it is a superblock.
pub fn torn(change: &Entry, sectors: u64) -> Survival {
    let is_copy = |offset: u64| OFFSETS.iter().any(|copy| copy.0 == offset);
    match &change.event {
        Event::Write { offset, .. } if is_copy(*offset) => Survival::Lost,
        _ => Survival::Torn { sectors },
    }
}

/// Whether the kernel begins with the superblock that we begin with: of the copies on a device it takes the first,
/// and we the newest; of several devices both take the newest.
pub fn kernel_takes_the_same(devices: &[MemoryDevice]) -> bool {
    let newest_first = devices.iter().map(|device| generation(device, OFFSETS[0].0)).max();
    let copies = |device: &MemoryDevice| {
        let fits = |copy: &u64| copy + SUPERBLOCK_SIZE as u64 <= device.len_bytes();
        let generations = OFFSETS.iter().map(|copy| copy.0).filter(fits);
        generations.map(|copy| generation(device, copy)).max()
    };
    newest_first == devices.iter().filter_map(copies).max()
}

fn generation(device: &MemoryDevice, copy: u64) -> u64 {
    let mut bytes = [0; 8];
    let at = copy + std::mem::offset_of!(Superblock, generation) as u64;
    device.read_at(&mut bytes, at).expect("memory is read");
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn write(offset: u64) -> Entry {
        Entry { device: 0, event: Event::Write { offset, data: Arc::from([1; 4096]) } }
    }

    #[test]
    fn superblocks_are_never_torn() {
        assert_eq!(torn(&write(0), 3), Survival::Torn { sectors: 3 });
        assert_eq!(torn(&write(64 << 10), 3), Survival::Lost);
        assert_eq!(torn(&write(64 << 20), 3), Survival::Lost);
    }

    #[test]
    fn the_kernel_takes_the_newest_of_first_copies() {
        let devices = [0, 1].map(|number| MemoryDevice::new(format!("{number}"), 128 << 20));
        let write = |device: usize, copy: u64, generation: u8| {
            let at = std::mem::offset_of!(Superblock, generation) as u64;
            devices[device].write_at(&[generation], copy + at).unwrap();
        };
        assert!(kernel_takes_the_same(&devices));
        write(1, 64 << 20, 1);
        assert!(!kernel_takes_the_same(&devices));
        write(0, 64 << 10, 1);
        assert!(kernel_takes_the_same(&devices), "of either device");
        write(1, 64 << 20, 2);
        assert!(!kernel_takes_the_same(&devices));
    }
}
