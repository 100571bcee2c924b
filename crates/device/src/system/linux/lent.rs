//! Locks that other processes hold: one that started this one lends its locks, and one that ends
//! gives them up.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Whether the lock of a block device is held by a process that started this one, or that started
/// its starter, and so on.
pub(crate) fn is_lent(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let lends = |holder| ancestors().any(|ancestor| ancestor == holder);
    metadata.file_type().is_block_device() && holder_of(&metadata).is_some_and(lends)
}

/// Whether the process that holds the lock of the file or block device has ended, or was killed,
/// and the kernel has yet to close its files.
pub(crate) fn is_left(locked: &Metadata) -> bool {
    let ends = |holder: u32| {
        let stat = fs::read_to_string(format!("/proc/{holder}/stat"));
        stat.is_ok_and(|stat| is_ending(&stat))
    };
    holder_of(locked).is_some_and(ends)
}

/// Whether `/proc/PID/stat` is of a process whose first thread has ended.
fn is_ending(stat: &str) -> bool {
    /// `PF_EXITING`.
    const EXITING: u64 = 4;
    let Some((_, after)) = stat.rsplit_once(')') else { return false };
    let mut words = after.split_whitespace();
    let is_zombie = words.next() == Some("Z");
    let flags: u64 = words.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or_default();
    is_zombie || flags & EXITING != 0
}

/// The process that has the lock of a file or block device.
fn holder_of(locked: &Metadata) -> Option<u32> {
    let (dev, inode) = (locked.dev(), locked.ino());
    let inode = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, &inode))
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

    #[test]
    fn a_process_that_ends_is_a_zombie_or_has_a_flag() {
        let stat = |state, flags| format!("812 (a) b) {state} 1 812 1 0 -1 {flags} 0 0");
        let ending = [("S", 0x40_0100), ("Z", 0x40_0100), ("D", 0x40_0104)];
        let ending = ending.map(|(state, flags)| is_ending(&stat(state, flags)));
        assert_eq!(ending, [false, true, true]);
    }
}
