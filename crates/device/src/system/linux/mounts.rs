//! Mounts and swap spaces, from `/proc`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{Identity, block};
use crate::usage::Mounts;

/// Where one of `devices` is mounted, in this mount namespace, by one of `mounts`.
pub(super) fn mount_point(devices: &[Identity], mounts_that_count: Mounts) -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let mount = mounts.split(|&byte| byte == b'\n').filter_map(Mount::parse).find(|mount| {
        let counts = mounts_that_count == Mounts::All || !mount.is_larders;
        counts && mount.source_identity().is_some_and(|identity| devices.contains(&identity))
    })?;
    Some(mount.point)
}

/// Whether `identity` is active swap space.
pub(super) fn is_swap(identity: Identity) -> bool {
    let swaps = fs::read("/proc/swaps").unwrap_or_default();
    swaps
        .split(|&byte| byte == b'\n')
        .skip(1)
        .filter_map(|line| line.split(|&byte| byte == b' ').next())
        .any(|path| Identity::of_path(Path::new(&unescape(path))) == Some(identity))
}

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The file system's device number; major 0 where it is no block device.
    dev: u64,
    point: PathBuf,
    source: PathBuf,
    /// A Larder server serves it.
    is_larders: bool,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let dev = block::parse_dev(str::from_utf8(fields.nth(2)?).ok()?)?;
        let point = unescape(fields.nth(1)?).into();
        // Optional fields end with a lone "-"; then come type, source and options.
        let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
        let is_larders = matches!(behind.next()?, b"fuse.larder" | b"fuseblk.larder");
        let source = unescape(behind.next()?).into();
        Some(Self { dev, point, source, is_larders })
    }

    /// The source of the mount. Btrfs and FUSE have device numbers of their own, so that only the
    /// source's name tells; the number of a block device is more reliable.
    fn source_identity(&self) -> Option<Identity> {
        if rustix::fs::major(self.dev) != 0 {
            Some(Identity::Block { rdev: self.dev })
        } else if self.source.is_absolute() {
            Identity::of_path(&self.source)
        } else {
            None
        }
    }
}

/// Undoes the kernel's `\ooo` for blanks and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_mountinfo() {
        let line = b"36 35 98:5 /sub /mnt/a\\040b rw,noatime master:1 - ext3 /dev/ro\\134ot rw";
        let mount = Mount {
            dev: rustix::fs::makedev(98, 5),
            point: "/mnt/a b".into(),
            source: "/dev/ro\\ot".into(),
            is_larders: false,
        };
        assert_eq!(Mount::parse(line), Some(mount));
        assert_eq!(Mount::parse(b""), None);
        assert_eq!(Mount::parse(b"36 35 98:x / /mnt rw - ext3 /dev/root rw"), None);
        assert_eq!(Mount::parse(b"36 35 98:5 / /mnt rw master:1"), None);
    }

    #[test]
    fn unescapes_octal_only() {
        assert_eq!(unescape(b"a\\011b\\12\\x"), "a\tb\\12\\x");
    }
}
