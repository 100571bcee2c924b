//! Locks that this process borrows.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Whether the lock of a block device is held by a process that started this one, or that started
/// its starter, and so on.
pub(crate) fn is_lent(file: &File) -> bool {
    let (Ok(metadata), Ok(locks)) = (file.metadata(), fs::read_to_string("/proc/locks")) else {
        return false;
    };
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let (dev, inode) = (metadata.dev(), metadata.ino());
    let inode = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let holder = locks.lines().find_map(|line| holder_in(line, &inode));
    holder.is_some_and(|holder| ancestors().any(|ancestor| ancestor == holder))
}

/// The process that has the lock of `inode`, if that is what a line of `/proc/locks` tells:
/// `1: FLOCK  ADVISORY  WRITE 812 00:06:345 0 EOF`.
fn holder_in(line: &str, inode: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let is_held = words.next()? == "FLOCK";
    let (process, locked) = (words.nth(2)?, words.next()?);
    (is_held && locked == inode).then(|| process.parse().ok()).flatten()
}

/// The process that started this one, the one that started that, and so on.
fn ancestors() -> impl Iterator<Item = u32> {
    std::iter::successors(Some(std::os::unix::process::parent_id()), |process| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name of the program comes before, and may contain anything.
        let (_, after) = stat.rsplit_once(')')?;
        after.split_whitespace().nth(1)?.parse().ok().filter(|process| *process != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_in_its_line() {
        let line = "1: FLOCK  ADVISORY  WRITE 812 00:06:345 0 EOF";
        assert_eq!(holder_in(line, "00:06:345"), Some(812));
        assert_eq!(holder_in(line, "00:06:34"), None);
        // One that waits, and one of another kind.
        let line = "1: -> FLOCK  ADVISORY  WRITE 812 00:06:345 0 EOF";
        assert_eq!(holder_in(line, "00:06:345"), None);
        assert_eq!(holder_in("2: POSIX  ADVISORY  READ 7 00:06:345 0 EOF", "00:06:345"), None);
        assert!(ancestors().count() > 0);
    }
}
