//! Results as JSON, in the form of btrfs-progs: all values are texts.

use std::io::{self, Write};

use serde_json::to_string;

/// Fields of an object: names and values.
pub type Fields = Vec<(&'static str, String)>;

/// Writes a list of objects, called `name`.
pub fn write_json(out: &mut impl Write, name: &str, objects: &[Fields]) -> io::Result<()> {
    writeln!(out, "{{\n  \"__header\": {{\n    \"version\": \"1\"\n  }},\n  \"{name}\": [")?;
    for (number, object) in objects.iter().enumerate() {
        writeln!(out, "    {{")?;
        for (number, (name, value)) in object.iter().enumerate() {
            let comma = if number + 1 < object.len() { "," } else { "" };
            writeln!(out, "      \"{name}\": {}{comma}", to_string(value)?)?;
        }
        let comma = if number + 1 < objects.len() { "," } else { "" };
        writeln!(out, "    }}{comma}")?;
    }
    writeln!(out, "  ]\n}}")
}
