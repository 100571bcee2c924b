//! Results as JSON, in the frame of btrfs-progs.
//!
//! Numbers and booleans are those of JSON, and what is absent is null. Objects of [`Fields`] are the
//! exception: all their values are texts, as in btrfs-progs 6.2.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use serde::{Serialize, Serializer};
use serde_json::to_string_pretty;

const HEADER: &str = "{\n  \"__header\": {\n    \"version\": \"1\"\n  },\n";

/// Fields of an object whose values are all texts: names and values.
pub type Fields = Vec<(&'static str, String)>;

/// Writes `value`, called `name`.
pub fn write_json(out: &mut impl Write, name: &str, value: &impl Serialize) -> io::Result<()> {
    write!(out, "{HEADER}  \"{name}\": {}\n}}\n", indented(value, "\n  ")?)
}

/// Writes a list of objects, called `name`, whose values are all texts.
pub fn write_texts(out: &mut impl Write, name: &str, objects: &[Fields]) -> io::Result<()> {
    let objects: Vec<_> = objects.iter().map(|fields| Object(fields)).collect();
    write_json(out, name, &objects)
}

/// A list of objects that is being written, none of which stays in memory. Nothing is written before
/// the first object or the end, so that a command that fails at once prints no half of a list.
pub struct JsonList {
    name: &'static str,
    is_empty: bool,
}

impl JsonList {
    /// A list called `name`.
    pub fn new(name: &'static str) -> Self {
        Self { name, is_empty: true }
    }

    /// Adds an object.
    pub fn push(&mut self, out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
        self.begin(out)?;
        out.write_all(if self.is_empty { b"\n    " } else { b",\n    " })?;
        self.is_empty = false;
        out.write_all(indented(object, "\n    ")?.as_bytes())
    }

    fn begin(&self, out: &mut impl Write) -> io::Result<()> {
        if self.is_empty {
            write!(out, "{HEADER}  \"{}\": [", self.name)?;
        }
        Ok(())
    }

    /// Adds an object whose values are all texts.
    pub fn add(&mut self, out: &mut impl Write, object: &Fields) -> io::Result<()> {
        self.push(out, &Object(object))
    }

    /// Ends the list; numbers that are no part of it follow.
    pub fn end_with(self, out: &mut impl Write, more: &[(&str, u64)]) -> io::Result<()> {
        self.begin(out)?;
        out.write_all(if self.is_empty { b"]" } else { b"\n  ]" })?;
        more.iter().try_for_each(|(name, number)| write!(out, ",\n  \"{name}\": {number}"))?;
        out.write_all(b"\n}\n")
    }
}

/// A value whose further lines begin with `line_start`, which is a line feed and spaces.
fn indented(value: &impl Serialize, line_start: &str) -> io::Result<String> {
    // No line feed is part of a text: JSON escapes it there.
    Ok(to_string_pretty(value)?.replace('\n', line_start))
}

/// An object with these names and values.
pub struct Object<'a, V>(pub &'a [(&'static str, V)]);

impl<V: Serialize> Serialize for Object<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A name, a path or a value in a file system: a text if it is UTF-8, otherwise an array of its
/// bytes.
#[derive(Debug)]
pub struct Name(Vec<u8>);

impl Name {
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_owned())
    }
}

impl<N: AsRef<OsStr> + ?Sized> From<&N> for Name {
    fn from(name: &N) -> Self {
        Self::of_bytes(name.as_ref().as_bytes())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}
