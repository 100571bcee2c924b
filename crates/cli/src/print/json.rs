//! Results as JSON, in the form of btrfs-progs: all values are texts.

use std::io::{self, Write};

use serde_json::to_string;

/// Fields of an object: names and values.
pub type Fields = Vec<(&'static str, String)>;

/// Writes a list of objects, called `name`.
pub fn write_json(out: &mut impl Write, name: &str, objects: &[Fields]) -> io::Result<()> {
    let mut list = JsonList::begin(out, name)?;
    objects.iter().try_for_each(|object| list.add(out, object))?;
    list.end_with(out, &[])
}

/// A list of objects that is being written, none of which stays in memory.
pub struct JsonList {
    is_empty: bool,
}

impl JsonList {
    /// Begins a list called `name`.
    pub fn begin(out: &mut impl Write, name: &str) -> io::Result<Self> {
        write!(out, "{{\n  \"__header\": {{\n    \"version\": \"1\"\n  }},\n  \"{name}\": [\n")?;
        Ok(Self { is_empty: true })
    }

    /// Adds an object.
    pub fn add(&mut self, out: &mut impl Write, object: &Fields) -> io::Result<()> {
        out.write_all(if self.is_empty { b"    {\n" } else { b",\n    {\n" })?;
        self.is_empty = false;
        for (number, (name, value)) in object.iter().enumerate() {
            let comma = if number + 1 < object.len() { "," } else { "" };
            writeln!(out, "      \"{name}\": {}{comma}", to_string(value)?)?;
        }
        out.write_all(b"    }")
    }

    /// Ends the list; values that are no part of it follow.
    pub fn end_with(self, out: &mut impl Write, more: &[(&str, String)]) -> io::Result<()> {
        out.write_all(if self.is_empty { b"  ]" } else { b"\n  ]" })?;
        for (name, value) in more {
            write!(out, ",\n  \"{name}\": {}", to_string(value)?)?;
        }
        out.write_all(b"\n}\n")
    }
}
