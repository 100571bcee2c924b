//! Commands become changes of inodes.
//!
//! # Invariants
//! - A command about an inode that the stream makes changes that inode or none: not the one that
//!   has its name, if making or moving it failed or another program has put that there.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use larder_filesystem::{Filesystem, Inode, RenameMode};
use larder_format::Uuid;

use super::batch::Batch;
use super::checked::Checked;
use super::names::Names;
use super::new::NewNode;
use crate::receive::error::{CommandError, CommandProblem};
use crate::receive::target::Origin;
use crate::wire::{Action, Command, Original};

/// Applies commands to one tree.
#[derive(Debug)]
pub(super) struct Applier {
    pub(super) filesystem: Filesystem,
    /// The tree's own name as a source of clones.
    pub(super) origin: Uuid,
    /// The user and the group of new inodes.
    owner: (u32, u32),
    pub(super) names: Names,
    /// An inode that the stream makes, and that is not created yet.
    new: Option<NewNode>,
    /// Changes to existing inodes that are not applied yet.
    batch: Batch,
    /// Subvolumes that were cloned from.
    pub(super) sources: HashMap<Origin, Names>,
    /// Errors of deferred commands.
    errors: VecDeque<CommandError>,
    pub(super) goes_on: GoesOn,
}

/// Says whether anybody still wants what takes long.
pub(super) struct GoesOn(pub(super) Box<dyn Fn() -> bool + Send>);

impl fmt::Debug for GoesOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GoesOn")
    }
}

impl Applier {
    pub(super) fn new(
        filesystem: Filesystem,
        names: Names,
        origin: Uuid,
        owner: (u32, u32),
    ) -> Self {
        let (new, batch, sources, errors) = Default::default();
        let goes_on = GoesOn(Box::new(|| true));
        Self { filesystem, origin, owner, names, new, batch, sources, errors, goes_on }
    }

    /// Applies a command or defers it. Returns the first error that was not returned yet.
    pub(super) fn apply(&mut self, command: &Command<'_>) -> Result<(), CommandError> {
        self.make_room();
        self.apply_checked(command, Checked::Anything)
    }

    /// Empties the cache of names if it is crowded. What waits needs it before.
    pub(super) fn make_room(&mut self) {
        if self.names.are_crowded() {
            self.apply_all_deferred();
            self.names.forget_all();
        }
    }

    /// The same, if the command finds the inodes that were `checked`.
    pub(super) fn apply_checked(
        &mut self,
        command: &Command<'_>,
        checked: Checked,
    ) -> Result<(), CommandError> {
        if let Command::Rename { to, .. } = *command
            && self.batch.has(to)
        {
            // It may replace an existing name.
            self.apply_all_deferred();
        }
        if checked != Checked::Anything || !self.absorb(command) {
            self.apply_or_gather(command, checked);
        }
        self.next_error()
    }

    /// Adds the changes of a command to the deferred inode. Returns whether it could.
    pub(super) fn absorb(&mut self, command: &Command<'_>) -> bool {
        self.new.as_mut().is_some_and(|new| new.absorb(command))
    }

    /// Makes the file at `path` a copy of another, or defers that. Returns the first error that was
    /// not returned yet.
    pub(super) fn apply_copy(
        &mut self,
        path: &[u8],
        original: Original,
        checked: Checked,
    ) -> Result<(), CommandError> {
        if checked != Checked::Anything || !self.absorb_copy(path, original) {
            let is_about_new = self.is_about_new(path);
            let is_made = self.make_new();
            self.apply_all_deferred();
            let copied = if is_about_new && !is_made {
                Err(CommandProblem::NotMade)
            } else {
                self.copy(path, original, checked)
            };
            let (action, failed) = (Action::Copy, copied.err());
            let error = |problem| CommandError { action, path: path.to_vec(), problem };
            self.errors.extend(failed.map(error));
        }
        self.next_error()
    }

    /// Makes the deferred inode a copy. Returns whether it could.
    pub(super) fn absorb_copy(&mut self, path: &[u8], original: Original) -> bool {
        self.new.as_mut().is_some_and(|new| new.absorb_copy(path, original))
    }

    fn apply_or_gather(&mut self, command: &Command<'_>, checked: Checked) {
        if command.path().is_some_and(|path| self.is_about_new(path)) && !self.make_new() {
            self.errors.push_back(CommandError::of(command, CommandProblem::NotMade));
            return;
        }
        if self.batch.add(command, checked, &self.names) {
            if self.batch.is_full() {
                self.apply_all_deferred();
            }
            return;
        }
        // Waiting changes to a name that does not exist do not concern the new inode of that name.
        let path = command.path().unwrap_or_default();
        // A change to a directory may change what a new inode inherits.
        let inherits = self.names.lets_inherit() && self.batch.has(parent_of(path));
        if adds_name(command) && !self.batch.has(path) && !inherits {
            self.make_new();
        } else {
            self.apply_all_deferred();
        }
        let applied = self.apply_now(command, checked);
        self.errors.extend(applied.err().map(|problem| CommandError::of(command, problem)));
    }

    /// Whether `path` is that of the deferred inode, or below.
    pub(super) fn is_about_new(&self, path: &[u8]) -> bool {
        let below = |new: &NewNode| path.strip_prefix(new.path());
        self.new.as_ref().and_then(below).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }

    /// Creates the deferred inode. Returns false if there was one and that failed.
    fn make_new(&mut self) -> bool {
        let mut make = |new: NewNode| new.make(&mut self.names, &self.goes_on.0);
        let failed = self.new.take().and_then(|new| make(new).err());
        let is_made = failed.is_none();
        self.errors.extend(failed);
        is_made
    }

    /// Applies all deferred commands. A directory's times are set after the changes in it.
    fn apply_all_deferred(&mut self) {
        self.make_new();
        self.batch.run(&mut self.names, &mut self.errors);
    }

    pub(super) fn apply_deferred(&mut self) -> Result<(), CommandError> {
        self.apply_all_deferred();
        self.next_error()
    }

    fn next_error(&mut self) -> Result<(), CommandError> {
        self.errors.pop_front().map_or(Ok(()), Err)
    }

    fn apply_now(&mut self, command: &Command<'_>, checked: Checked) -> Result<(), CommandProblem> {
        match *command {
            Command::Rename { path, to } => self.rename(path, to, checked),
            Command::Link { path, existing } => {
                let inode = self.names.inode(existing)?;
                checked.check(&inode)?;
                let (directory, name) = self.names.parent_and_name(path)?;
                Ok(directory.link_child(name, &inode)?)
            }
            Command::Unlink { path } => {
                self.names.forget(path);
                let (directory, name) = self.names.parent_and_name(path)?;
                directory.remove_child_if(name, |inode| checked.check(inode))
            }
            Command::Rmdir { path } => {
                self.names.forget(path);
                let (directory, name) = self.names.parent_and_name(path)?;
                directory.remove_child_directory_if(name, |inode| checked.check(inode))
            }
            // As `btrfs receive` does: some flags would refuse what follows, and others say how the
            // file system of the sender keeps the file.
            Command::Fileattr { path, .. } => self.names.inode(path).map(drop).map_err(Into::into),
            Command::EnableVerity { .. } => Err(CommandProblem::Unsupported("verity")),
            _ => match NewNode::of(command, self.owner)? {
                Some(new) => {
                    self.new = Some(new);
                    Ok(())
                }
                None => self.change_data(command, checked),
            },
        }
    }

    fn rename(&mut self, path: &[u8], to: &[u8], checked: Checked) -> Result<(), CommandProblem> {
        let (from, name) = self.names.parent_and_name(path)?;
        let (directory, new_name) = self.names.parent_and_name(to)?;
        let known = self.names.last_at(path);
        let may = |moved: &Inode, replaced: Option<&Inode>| {
            let is_it = known.as_ref().is_none_or(|known| known == moved);
            if is_it { checked.check_names(moved, replaced) } else { Err(CommandProblem::Replaced) }
        };
        from.rename_child_if(name, &directory, new_name, RenameMode::Replace, may)?;
        self.names.forget(path);
        self.names.forget(to);
        if let Some(known) = known {
            self.names.note(to, known);
        }
        Ok(())
    }
}

/// The path of the directory that contains `path`.
fn parent_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// Whether a command only adds a name: every existing path keeps its inode, unchanged.
fn adds_name(command: &Command<'_>) -> bool {
    matches!(
        command,
        Command::Mkfile { .. }
            | Command::Mkdir { .. }
            | Command::Mknod { .. }
            | Command::Mkfifo { .. }
            | Command::Mksock { .. }
            | Command::Symlink { .. }
            | Command::Link { .. }
    )
}
