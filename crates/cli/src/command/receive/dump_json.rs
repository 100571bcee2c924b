//! A stream as JSON, an object for each command, with the names of btrfs-progs.

use std::io::{Read, Write};

use larder_stream::{Command, Field, Reader, describe, join};
use serde_json::{Value, json};

use crate::print::{JsonList, Name, Object, stream_time};

/// Writes the streams in `input` as a list of operations, each as it is read.
pub fn dump(input: impl Read, mut out: impl Write) -> anyhow::Result<()> {
    let mut reader = Reader::new(input);
    let mut list = JsonList::new("operations");
    let mut subvolume = Vec::new();
    while let Some(command) = reader.next()? {
        let (Some(path), Some(description)) = (command.path(), describe(&command)) else {
            continue;
        };
        let path = if let Command::Subvol { .. } | Command::Snapshot { .. } = command {
            subvolume = join(b".", path);
            subvolume.clone()
        } else {
            join(&subvolume, path)
        };
        let mut fields =
            vec![("op", json!(command.name())), ("path", json!(Name::of_bytes(&path)))];
        let details = description.fields.into_iter();
        fields.extend(details.map(|(name, field)| (name, value(field, &subvolume))));
        list.push(&mut out, &Object(&fields))?;
    }
    list.end_with(&mut out, &[])?;
    Ok(out.flush()?)
}

fn value(field: Field<'_>, subvolume: &[u8]) -> Value {
    match field {
        Field::Number(number) => json!(number),
        Field::Uuid(uuid) => json!(uuid.to_string()),
        Field::Time(time) => json!(stream_time(time.seconds)),
        Field::Path(path) => json!(Name::of_bytes(&join(subvolume, path))),
        Field::Bytes(bytes) => json!(Name::of_bytes(bytes)),
    }
}
