//! What the operating system answers, in words.

use std::io;

use rustix::io::Errno;

/// What stands before the number in the text of an [`io::Error`], and what behind it.
const BEFORE_NUMBER: &str = " (os error ";
const BEHIND_NUMBER: char = ')';

/// The text of an error, with reasons in place of the numbers of the operating system.
pub fn in_words(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, number)) = rest.split_once(BEFORE_NUMBER) {
        let Some((number, behind)) = number.split_once(BEHIND_NUMBER) else { break };
        let number = number.parse().unwrap_or_default();
        let known = io::Error::from_raw_os_error(number).to_string();
        let known = known.split(BEFORE_NUMBER).next().unwrap_or_default();
        match before.strip_suffix(known) {
            Some(before) => words.extend([before, &reason(number, known)]),
            None => words.push_str(before),
        }
        rest = behind;
    }
    words.push_str(rest);
    words
}

/// What the number of an error means to a user of file systems; `known` is what the C library calls it.
fn reason(number: i32, known: &str) -> String {
    match Errno::from_raw_os_error(number) {
        Errno::NOENT => "there is no such file or directory".into(),
        Errno::EXIST => "there is something of that name already".into(),
        Errno::NOTDIR => "a directory is needed, and it is none".into(),
        Errno::ISDIR => "it is a directory".into(),
        Errno::NOTEMPTY => "it has something in it".into(),
        Errno::ACCESS => "permission to use it is missing".into(),
        Errno::PERM => "this user may not do that; root may".into(),
        Errno::ROFS => "it is read-only".into(),
        Errno::BUSY => "it is in use".into(),
        Errno::NOSPC => "the device is full".into(),
        Errno::XDEV => "they are not in one file system".into(),
        Errno::INVAL => "the file system refuses that for a file of this kind".into(),
        Errno::NOTTY => NO_BTRFS.into(),
        Errno::OPNOTSUPP => "the file system cannot do that".into(),
        _ => known.to_lowercase(),
    }
}

/// Of what is neither an image nor in a mounted file system that understands btrfs's requests.
pub const NO_BTRFS: &str = "neither a btrfs of the kernel's nor a mount of larder's";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_reasons() {
        let text = |number| format!("a: {}", io::Error::from_raw_os_error(number));
        assert_eq!(in_words(&text(2)), "a: there is no such file or directory");
        assert_eq!(in_words(&text(22)), "a: the file system refuses that for a file of this kind");
        assert_eq!(in_words(&text(5)), "a: input/output error");
        assert_eq!(in_words("b: strange (os error 7)"), "b: strange");
        assert_eq!(in_words(&format!("{}; {}", text(1), text(21))).matches("a: ").count(), 2);
        assert_eq!(in_words("no number (os error"), "no number (os error");
    }
}
