//! Errors of the operating system, in the words that people and scripts search for.

use std::error::Error;
use std::io;

#[cfg(target_os = "linux")]
use super::linux::advice;

/// The text of an error without numbers of the operating system: the words of strerror(3) stay, and
/// a way out follows if there is one.
///
/// The numbers are those that the error and its causes carry. Nothing is read from the text.
pub fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(number) = number_of(cause) {
            let way_out = advice(number).map(|advice| format!(": {advice}")).unwrap_or_default();
            text = text.replace(&appended(number), &way_out);
        }
        next = cause_of(cause);
    }
    text
}

/// What the standard library appends to the words for a number.
fn appended(number: i32) -> String {
    format!(" (os error {number})")
}

fn number_of(error: &(dyn Error + 'static)) -> Option<i32> {
    #[cfg(unix)]
    if let Some(errno) = error.downcast_ref::<rustix::io::Errno>() {
        return Some(errno.raw_os_error());
    }
    error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error)
}

fn cause_of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(not(target_os = "linux"))]
fn advice(_: i32) -> Option<&'static str> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fmt;

    use super::*;

    /// An error that says what its cause says, and more.
    #[derive(Debug)]
    struct About(&'static str, io::Error);

    impl fmt::Display for About {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}: {}", self.0, self.1)
        }
    }

    impl Error for About {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }

    fn of_system(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    #[test]
    fn numbers_are_left_out_and_the_usual_words_stay() {
        assert_eq!(in_words(&of_system(2)), "No such file or directory");
        assert_eq!(in_words(&About("a", of_system(13))), "a: Permission denied");
        let no_btrfs =
            "a: Inappropriate ioctl for device: neither the kernel's btrfs nor a mount of larder";
        assert_eq!(in_words(&About("a", of_system(25))), no_btrfs);
        assert_eq!(in_words(&rustix::io::Errno::ISDIR), "Is a directory");
        let wrapped = io::Error::other(About("a", of_system(1)));
        assert_eq!(in_words(&About("b", wrapped)), "b: a: Operation not permitted");
    }

    #[test]
    fn text_is_no_number() {
        let named = io::Error::other("strange (os error 7)");
        assert_eq!(in_words(&named), "strange (os error 7)");
    }
}
