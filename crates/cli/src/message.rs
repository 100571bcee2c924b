//! Errors as users read them: one line, with all causes.

use std::io;

use larder_platform::errno::in_words;

/// An error and its causes, in words. A cause that the text before it already contains is left out.
///
/// A text that ends with a colon is an [image](crate::source::on_image): a path in it follows at once.
pub fn message(error: &anyhow::Error) -> String {
    let text = error.chain().map(in_words).fold(String::new(), joined);
    on_one_line(&text)
}

/// A name in a message may contain anything: characters that move the cursor or begin a line are
/// escaped.
pub fn on_one_line(text: &str) -> String {
    let mut line = String::new();
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_debug());
        } else {
            line.push(letter);
        }
    }
    line
}

fn joined(said: String, cause: String) -> String {
    let is_image = said.ends_with(':');
    let path = cause.split_once(": ").filter(|(path, _)| path.starts_with('/'));
    match path {
        _ if said.is_empty() || (is_image && cause.starts_with(&said)) => cause,
        _ if said.ends_with(&cause) => said,
        // The cause names the operand too.
        _ if cause.strip_prefix(&said).is_some_and(|rest| rest.starts_with(':')) => cause,
        _ if is_image && cause.starts_with('/') => said + &cause,
        _ if is_image => format!("{said} {cause}"),
        Some((path, rest)) if said.ends_with(path) => format!("{said}: {rest}"),
        _ => format!("{said}: {cause}"),
    }
}

pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_messages_stay_on_their_line() {
        let error = anyhow::anyhow!("a\nb\u{1b}[2J: No such file or directory");
        assert_eq!(message(&error), "a\\nb\\u{1b}[2J: No such file or directory");
    }

    #[test]
    fn an_image_and_a_path_in_it_are_said_once() {
        let said = |texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned());
            texts.fold(String::new(), joined)
        };
        assert_eq!(said(&["a.img:", "/f: File exists"]), "a.img:/f: File exists");
        assert_eq!(said(&["a.img:", "a.img:/f", "/f: File exists"]), "a.img:/f: File exists");
        assert_eq!(said(&["a.img:", "No space left"]), "a.img: No space left");
        assert_eq!(said(&["a.img:", "a.img: read failed"]), "a.img: read failed");
        assert_eq!(said(&["f", "x: no", "no"]), "f: x: no");
        assert_eq!(said(&["f", "f: no", "no"]), "f: no");
        assert_eq!(said(&["f", "f:/x: no"]), "f:/x: no");
        assert_eq!(said(&["f", "ff: no"]), "f: ff: no");
    }
}
