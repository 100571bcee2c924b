//! Attributes that are set later, many at once.

use std::collections::VecDeque;

use larder_filesystem::SetAttributes;

use super::names::Names;
use crate::receive::error::CommandError;

/// Inodes whose attributes wait.
const MOST: usize = 4;

/// Attributes of inodes that are there, by path: names stay as they are while attributes wait.
#[derive(Debug, Default)]
pub(super) struct Late {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// The command that asked for it last.
    command: &'static str,
    path: Vec<u8>,
    attributes: SetAttributes,
}

impl Late {
    /// Puts attributes off, and sets those that have waited longest if there are too many.
    pub(super) fn merge(
        &mut self,
        names: &mut Names,
        command: &'static str,
        path: &[u8],
        attributes: &SetAttributes,
    ) -> Result<(), CommandError> {
        let known = self.waiting.iter().position(|waiting| waiting.path == path);
        if let Some(known) = known
            && let Some(merged) = merged(&self.waiting[known].attributes, attributes)
        {
            self.waiting[known] = Waiting { command, path: path.to_vec(), attributes: merged };
            return Ok(());
        }
        let first = known.or(self.is_full().then_some(0));
        let outcome = first.map_or(Ok(()), |first| self.waiting.remove(first).set(names));
        self.waiting.push(Waiting { command, path: path.to_vec(), attributes: *attributes });
        outcome
    }

    /// Whether more would have those set that have waited longest.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST
    }

    /// Whether attributes of what is at `path` wait.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.waiting.iter().any(|waiting| waiting.path == path)
    }

    /// Sets everything that waits.
    pub(super) fn settle(&mut self, names: &mut Names, errors: &mut VecDeque<CommandError>) {
        for waiting in self.waiting.drain(..) {
            errors.extend(waiting.set(names).err());
        }
    }
}

impl Waiting {
    fn set(self, names: &mut Names) -> Result<(), CommandError> {
        let set = |inode: larder_filesystem::Inode| inode.set_attributes(&self.attributes);
        names.inode(&self.path).and_then(set).map_err(|error| CommandError {
            command: self.command,
            path: self.path,
            problem: error.into(),
        })
    }
}

/// What both set, and the later one where both set the same; none where it would not be the same as one
/// after the other: a new owner takes away some of the permissions.
pub(super) fn merged(earlier: &SetAttributes, later: &SetAttributes) -> Option<SetAttributes> {
    if later.uid.is_some() && earlier.permissions.is_some() {
        return None;
    }
    Some(SetAttributes {
        permissions: later.permissions.or(earlier.permissions),
        uid: later.uid.or(earlier.uid),
        gid: later.gid.or(earlier.gid),
        atime: later.atime.or(earlier.atime),
        mtime: later.mtime.or(earlier.mtime),
        ctime: later.ctime.or(earlier.ctime),
        otime: later.otime.or(earlier.otime),
        flags: later.flags.or(earlier.flags),
    })
}
