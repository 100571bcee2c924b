//! Superblock copies in a power cut.

use larder_format::superblock::OFFSETS;
use larder_test_devices::{Entry, Event, Survival};

/// A change of which only the first `sectors` sectors of 512 bytes are written; nothing, if it is a
/// superblock.
pub(crate) fn torn(change: &Entry, sectors: u64) -> Survival {
    let is_copy = |offset: u64| OFFSETS.iter().any(|copy| copy.0 == offset);
    match &change.event {
        Event::Write { offset, .. } if is_copy(*offset) => Survival::Lost,
        _ => Survival::Torn { sectors },
    }
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
}
