//! Errors of the operating system, in the words that people and scripts search for.

use rustix::io::Errno;

/// The text before the number in a [`std::io::Error`], and after it.
const BEFORE_NUMBER: &str = " (os error ";
const AFTER_NUMBER: char = ')';

/// The error for a path that is neither an image nor in a mounted file system that understands
/// btrfs's requests.
const NO_BTRFS: &str = "neither the kernel's btrfs nor a mount of larder";

/// The text of an error without numbers of the operating system: the words of strerror(3) stay, and
/// a way out follows if there is one.
pub fn in_words(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, number)) = rest.split_once(BEFORE_NUMBER) {
        let Some((number, after)) = number.split_once(AFTER_NUMBER) else { break };
        words.push_str(before);
        if let Some(advice) = number.parse().ok().and_then(advice) {
            words.extend([": ", advice]);
        }
        rest = after;
    }
    words.push_str(rest);
    words
}

/// What the words for this number leave open.
fn advice(number: i32) -> Option<&'static str> {
    match Errno::from_raw_os_error(number) {
        Errno::NOTTY => Some(NO_BTRFS),
        Errno::UCLEAN => Some("something on the disk is damaged; larder check says what"),
        Errno::NOTCONN => Some("the server of this mount is gone; larder umount -f ends the mount"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn numbers_are_left_out_and_the_usual_words_stay() {
        let text = |number| format!("a: {}", io::Error::from_raw_os_error(number));
        assert_eq!(in_words(&text(2)), "a: No such file or directory");
        assert_eq!(in_words(&text(13)), "a: Permission denied");
        let no_btrfs =
            "a: Inappropriate ioctl for device: neither the kernel's btrfs nor a mount of larder";
        assert_eq!(in_words(&text(25)), no_btrfs);
        assert_eq!(in_words("b: strange (os error 7)"), "b: strange");
        assert_eq!(in_words(&format!("{}; {}", text(1), text(21))).matches("a: ").count(), 2);
        assert_eq!(in_words("no number (os error"), "no number (os error");
    }
}
