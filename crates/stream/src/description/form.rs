//! Forms: text with places for fields.

use std::io::Write;

use super::Field;

/// How the fields of a form are written.
pub(crate) trait Style {
    /// Appends the content of a field. `letter` is `o` for an octal number, `x` for a hexadecimal
    /// one, `i` for one with a sign in 32 bits, and `r` for bytes that are written as they are.
    fn put(&self, field: Field<'_>, letter: &str, out: &mut Vec<u8>);
}

/// The style of what a receiver tells.
pub(crate) struct Plain;

impl Style for Plain {
    fn put(&self, field: Field<'_>, letter: &str, out: &mut Vec<u8>) {
        // Writing cannot fail: the text only grows.
        let _ = match (field, letter) {
            (Field::Number(number), "o") => write!(out, "{number:o}"),
            (Field::Number(number), "x") => write!(out, "{number:x}"),
            (Field::Number(number), "i") => write!(out, "{}", number as i32),
            (Field::Number(number), _) => write!(out, "{number}"),
            (Field::Uuid(uuid), _) => write!(out, "{uuid}"),
            (Field::Time(time), _) => write!(out, "{}", time.seconds),
            (Field::Path(bytes) | Field::Bytes(bytes), _) => out.write_all(as_text(bytes)),
        };
    }
}

/// Appends `form` with the content of `fields`.
pub(super) fn put(form: &str, fields: &[(&str, Field<'_>)], out: &mut Vec<u8>, style: &impl Style) {
    let mut rest = form;
    while let Some((before, place, after)) = split(rest) {
        out.extend_from_slice(before.as_bytes());
        let (name, letter) = place;
        if let Some((_, field)) = fields.iter().find(|(known, _)| *known == name) {
            style.put(*field, letter, out);
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Splits at the first place: what comes before it, its name and letter, and what follows.
fn split(form: &str) -> Option<(&str, (&str, &str), &str)> {
    let (before, rest) = form.split_once('{')?;
    let (place, after) = rest.split_once('}')?;
    Some((before, place.split_once(':').unwrap_or((place, "")), after))
}

/// The text that C would print: all before the first zero byte.
pub(crate) fn as_text(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
}

/// The names of the fields that a form has places for.
#[cfg(test)]
pub(super) fn named(mut form: &str) -> Vec<&str> {
    let mut names = Vec::new();
    while let Some((_, (name, _), after)) = split(form) {
        names.push(name);
        form = after;
    }
    names
}
