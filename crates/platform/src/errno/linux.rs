//! The errors that Linux has by these names.

pub use libc::{EDQUOT, ENODATA, EUCLEAN};

/// What the words for this number leave open.
pub(super) fn advice(number: i32) -> Option<&'static str> {
    match number {
        libc::ENOTTY => Some("neither the kernel's btrfs nor a mount of larder"),
        libc::EUCLEAN => Some("something on the disk is damaged; larder check says what"),
        libc::ENOTCONN => Some("the server of this mount is gone; larder umount -f ends the mount"),
        _ => None,
    }
}
