//! Tables of mounts, as `/proc/PID/mountinfo` shows them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMount {
    /// Its number among all mounts.
    pub id: u64,
    /// The number of the mount that it lies on.
    pub parent: u64,
    /// Number of the mounted file system, which all its mounts share, as `st_dev` has it. Its major
    /// part is 0 where the file system is on no block device.
    pub device: u64,
    /// The directory of the file system that is shown.
    pub root: PathBuf,
    /// Where it is mounted.
    pub path: PathBuf,
    /// Options of the mount, with commas between them.
    pub options: String,
    /// The type of the file system.
    pub kind: String,
    /// What was mounted.
    pub source: PathBuf,
    /// Options of the file system, which all its mounts share.
    pub superblock_options: String,
}

impl KernelMount {
    /// The mounts that this process can reach, in the order in which they were made.
    ///
    /// # Errors
    /// The system's, if there is no `/proc`.
    pub fn of_this_process() -> io::Result<Vec<Self>> {
        Ok(Self::table(&fs::read("/proc/self/mountinfo")?))
    }

    /// The mounts that the process or thread `pid` can reach; none if the caller may not see them.
    pub fn of_process(pid: u32) -> Vec<Self> {
        Self::table(&fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default())
    }

    /// The mounts in the text of such a file. Lines that are none are left out.
    pub fn table(text: &[u8]) -> Vec<Self> {
        text.split(|byte| *byte == b'\n').filter_map(Self::parse).collect()
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        let device = parse_device_number(fields.next()?, 10)?;
        let (root, path) = (unescape(fields.next()?).into(), unescape(fields.next()?).into());
        let options = text(fields.next()?);
        // Optional fields end with a lone "-".
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (text(rest.next()?), unescape(rest.next()?).into());
        let superblock_options = text(rest.next().unwrap_or_default());
        Some(Self { id, parent, device, root, path, options, kind, source, superblock_options })
    }
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

/// A device number as `major:minor` in digits of this radix.
pub fn parse_device_number(text: &[u8], radix: u32) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(text).ok()?.split_once(':')?;
    let number = |digits| u32::from_str_radix(digits, radix).ok();
    Some(rustix::fs::makedev(number(major)?, number(minor)?))
}

/// Undoes the backslash and three octal digits that the kernel writes for blanks and a few others.
pub(super) fn unescape(field: &[u8]) -> OsString {
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
    fn tables_are_read() {
        let line = b"36 35 98:5 /sub /mnt/a\\040b rw,noatime master:1 - ext3 /dev/ro\\134ot rw,x=y";
        let mount = KernelMount {
            id: 36,
            parent: 35,
            device: rustix::fs::makedev(98, 5),
            root: "/sub".into(),
            path: "/mnt/a b".into(),
            options: "rw,noatime".into(),
            kind: "ext3".into(),
            source: "/dev/ro\\ot".into(),
            superblock_options: "rw,x=y".into(),
        };
        assert_eq!(KernelMount::table(line), [mount]);
        for bad in ["", "36 35 98:x / /mnt rw - ext3 /dev/root rw", "36 35 98:5 / /mnt rw master:1"]
        {
            assert_eq!(KernelMount::table(bad.as_bytes()), []);
        }
        assert!(!KernelMount::of_this_process().unwrap().is_empty());
    }

    #[test]
    fn device_numbers_are_read() {
        let number = |text: &str| parse_device_number(text.as_bytes(), 10);
        assert_eq!(number("7:260"), Some(rustix::fs::makedev(7, 260)));
        assert_eq!((number("7"), number("7:-1"), number("7:260\n")), (None, None, None));
        assert_eq!(parse_device_number(b"fd:1a", 16), Some(rustix::fs::makedev(253, 26)));
    }

    #[test]
    fn only_octal_digits_are_unescaped() {
        assert_eq!(unescape(b"a\\011b\\12\\x"), "a\tb\\12\\x");
        assert_eq!(unescape(br"/end\04"), r"/end\04");
    }
}
