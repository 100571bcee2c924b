//! Commands as users see them: one description of each, from which every form is made.
//!
//! | form | made by |
//! | --- | --- |
//! | a line of `btrfs receive --dump` | [`dump`](crate::dump()) |
//! | a line of `btrfs receive -v` | [`Description::told`] |
//! | an object of JSON | the [fields](Description::fields), in their order |

mod commands;
mod form;

use larder_format::Uuid;

use crate::wire::Timestamp;

pub use commands::describe;
pub(crate) use form::{Plain, Style, as_text};

/// What users see of a command.
#[derive(Clone, Debug)]
pub struct Description<'a> {
    /// Its fields, by the names that they have in JSON. The path is not among them.
    pub fields: Vec<(&'static str, Field<'a>)>,
    /// The form in a dump, after the path. A `{field}` stands for its content, and `{field:o}` for
    /// its content as [`Style::put`] understands the letter.
    dump: &'static str,
    /// The form in which a receiver tells of it; empty if it never does.
    told: &'static str,
    /// When a receiver tells of it.
    pub detail: Detail,
}

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// A uuid.
    Uuid(Uuid),
    /// A time.
    Time(Timestamp),
    /// A path in the subvolume that is received.
    Path(&'a [u8]),
    /// Any other bytes: a name, a value, the target of a link.
    Bytes(&'a [u8]),
}

/// How much is told of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The subvolumes, and what is written to files.
    Data,
    /// Every command.
    Everything,
}

impl Description<'_> {
    /// Appends its form in a dump.
    pub(crate) fn put_dump(&self, out: &mut Vec<u8>, style: &impl Style) {
        form::put(self.dump, &self.fields, out, style);
    }

    /// Whether a dump has more than a path.
    pub(crate) fn has_dump(&self) -> bool {
        !self.dump.is_empty()
    }

    /// What a receiver tells, if it tells of such commands. `path` is that of the command.
    pub fn told(&self, path: &[u8]) -> Option<String> {
        if self.told.is_empty() {
            return None;
        }
        let path = ("path", Field::Path(path));
        let fields: Vec<_> = self.fields.iter().copied().chain([path]).collect();
        let mut line = Vec::new();
        form::put(self.told, &fields, &mut line, &Plain);
        Some(String::from_utf8_lossy(&line).into_owned())
    }
}

/// Both paths joined with a slash, each without a slash at its end.
pub fn join(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let strip = |path| <[u8]>::strip_suffix(path, b"/").unwrap_or(path);
    [strip(folder), b"/", strip(path)].concat()
}
