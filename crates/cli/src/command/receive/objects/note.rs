//! What a target is told about the subvolume that is being received in it.

use larder_objects::streams::{Name, Stream, StreamId};

/// The file in the target that has the note.
pub(super) const NOTE: &str = ".larder-receiving";

/// The subvolume that is being received, and the stream that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) stream: StreamId,
    pub(super) name: Name,
}

impl Note {
    pub(super) fn of(stream: &Stream) -> Self {
        Self { stream: stream.id, name: stream.name.clone() }
    }

    /// Names have no slash.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [self.stream.to_string().as_bytes(), b"/", self.name.as_bytes()].concat()
    }

    /// The note in a file. Nothing is noted in an empty one.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let slash = bytes.iter().position(|byte| *byte == b'/')?;
        let stream = StreamId::parse(str::from_utf8(&bytes[..slash]).ok()?)?;
        Some(Self { stream, name: Name::new(&bytes[slash + 1..])? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_are_written() {
        let stream = StreamId::parse("000000000000000f").unwrap();
        let note = Note { stream, name: Name::new(b"mon\nday").unwrap() };
        assert_eq!(note.to_bytes(), b"000000000000000f/mon\nday");
        assert_eq!(Note::parse(&note.to_bytes()), Some(note));
        for text in ["", "monday", "f/monday", "000000000000000f/", "000000000000000f/.."] {
            assert_eq!(Note::parse(text.as_bytes()), None, "{text}");
        }
    }
}
