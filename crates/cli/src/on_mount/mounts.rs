//! What is mounted where.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use rustix::io::Errno;

/// Fails if other file systems are mounted at or below `path`.
pub fn expect_none_below(path: &Path) -> anyhow::Result<()> {
    let path = path.canonicalize()?;
    let table = fs::read("/proc/self/mountinfo")?;
    let points = table.split(|byte| *byte == b'\n');
    let points = points.filter_map(|row| row.split(|byte| *byte == b' ').nth(4));
    for point in points.map(unescaped) {
        let point = Path::new(OsStr::from_bytes(&point));
        if point.starts_with(&path) {
            return Err(Errno::BUSY).with_context(|| format!("{}: is mounted", point.display()));
        }
    }
    Ok(())
}

/// A path in the table of mounts, where some letters are octal numbers.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(letter) if *first == b'\\' => {
                path.push(letter);
                rest = &behind[3..];
            }
            _ => {
                path.push(*first);
                rest = behind;
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn paths_of_mounts_are_read() {
        assert_eq!(unescaped(b"/a\\040b\\134c"), b"/a b\\c");
        assert_eq!(unescaped(b"/a\\04"), b"/a\\04");
    }
}
