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

/// Whether all superblocks are of one commit: of others the kernel takes the first, and we the last.
pub fn copies_agree(device: &MemoryDevice) -> bool {
    let generation = |offset: u64| {
        let mut bytes = [0; 8];
        let at = offset + std::mem::offset_of!(Superblock, generation) as u64;
        device.read_at(&mut bytes, at).expect("memory is read");
        u64::from_le_bytes(bytes)
    };
    let fits = |copy: u64| copy + SUPERBLOCK_SIZE as u64 <= device.len_bytes();
    let mut copies = OFFSETS.iter().map(|copy| copy.0).filter(|copy| fits(*copy)).map(generation);
    let first = copies.next();
    copies.all(|copy| Some(copy) == first)
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
    fn copies_of_two_commits_do_not_agree() {
        let device = MemoryDevice::new("memory", 128 << 20);
        assert!(copies_agree(&device));
        let at = std::mem::offset_of!(Superblock, generation) as u64;
        device.write_at(&[1], (64 << 10) + at).unwrap();
        assert!(!copies_agree(&device));
        device.write_at(&[1], (64 << 20) + at).unwrap();
        assert!(copies_agree(&device));
    }
}
