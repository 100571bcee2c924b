//! Changes of what lies below an existing directory.

use std::ffi::OsStr;

use larder_filesystem::{Directory, Error};
use larder_format::Uuid;

use super::applier::{Applier, GoesOn};
use super::checked::Checked;
use super::names::Names;
use crate::receive::error::CommandError;
use crate::receive::path::{check_path, check_paths};
use crate::wire::Change;

/// Applies changes below a directory that exists. Paths start there, follow no symbolic link, and
/// may lead into other subvolumes. A clone of a file below the same directory names its source by
/// the [nil uuid](Uuid::nil). The caller must know that all of this is allowed: commands of a
/// stream are for a [`Target`](crate::Target) instead.
#[derive(Debug)]
pub struct Changes {
    applier: Applier,
}

impl Changes {
    /// Changes below `directory`. New inodes belong to `owner`, a user and a group.
    pub fn below(directory: Directory, owner: (u32, u32)) -> Self {
        let filesystem = directory.subvolume().filesystem().clone();
        Self { applier: Applier::new(filesystem, Names::below(directory), Uuid::nil(), owner) }
    }

    /// Asks `goes_on` again and again while it copies data that files cannot share. If that is
    /// false, the copy fails.
    #[must_use]
    pub fn while_it(mut self, goes_on: impl Fn() -> bool + Send + 'static) -> Self {
        self.applier.goes_on = GoesOn(Box::new(goes_on));
        self
    }

    /// Applies a change, or defers it until others have come. The error may be that of a deferred
    /// change, which it names. The change concerns the inodes that the caller has `checked` alone.
    pub fn apply(&mut self, change: &Change<'_>, checked: Checked) -> Result<(), CommandError> {
        let failed = |problem| {
            let (action, path) = (change.action(), change.path().to_vec());
            CommandError { action, path, problem }
        };
        match *change {
            Change::Command(command) => {
                check_paths(&command).map_err(failed)?;
                self.applier.apply_checked(&command, checked)
            }
            Change::On { inode, command } => {
                check_paths(&command).map_err(failed)?;
                let checked = checked.and_is(inode).map_err(failed)?;
                self.applier.apply_checked(&command, checked)
            }
            Change::Copy { path, original } => {
                check_path(path).map_err(failed)?;
                self.applier.apply_copy(path, original, checked)
            }
        }
    }

    /// Empties the cache of names if it is crowded: before what the caller looks up for a change.
    pub fn make_room(&mut self) {
        self.applier.make_room();
    }

    /// The directory of `path`, and the name in it. `enters` may refuse to look a name up in a
    /// directory. The next change finds the same.
    pub fn parent_and_name<'p, E: From<Error>>(
        &mut self,
        path: &'p [u8],
        enters: impl Fn(&Directory, &OsStr) -> Result<(), E>,
    ) -> Result<(Directory, &'p OsStr), E> {
        self.applier.names.parent_and_name_through(path, enters)
    }

    /// Whether a change concerns the inode that earlier changes make and that does not exist yet.
    /// What has its name meanwhile is another.
    pub fn is_about_new(&self, change: &Change<'_>) -> bool {
        self.applier.is_about_new(change.path())
    }

    /// Applies a change if it concerns an inode that earlier changes make and that nothing else can
    /// know: the change completes it before it has a name. Returns whether it was applied.
    pub fn complete_new(&mut self, change: &Change<'_>) -> bool {
        match *change {
            Change::Command(command) => {
                check_paths(&command).is_ok() && self.applier.absorb(&command)
            }
            // An inode that has no name yet has no number.
            Change::On { .. } => false,
            Change::Copy { path, original } => self.applier.absorb_copy(path, original),
        }
    }

    /// Applies deferred commands. After an error it is called again, for the next one.
    pub fn apply_deferred(&mut self) -> Result<(), CommandError> {
        self.applier.apply_deferred()
    }

    /// Forgets what is known of a path and of all below, which another thread has changed.
    pub fn forget(&mut self, path: &[u8]) {
        self.applier.names.forget(path);
    }
}
