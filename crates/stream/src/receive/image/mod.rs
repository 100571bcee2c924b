//! Receiving into a file system that this process has open for writing.
//!
//! The most common commands are batched: a new inode is created in one step, with its name,
//! attributes and short content, once the stream moves on; changes to existing inodes are applied
//! to many of them at once, by several threads; attributes that are set again and again, above all
//! the times of directories, are set once.

mod attributes;
mod batch;
mod data;
mod names;
mod new;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder_filesystem::{Directory, Filesystem, NewInode, RenameMode, SnapshotKind, Subvolume};

use self::batch::Batch;
use self::names::Names;
use self::new::NewNode;
use super::error::{CommandError, CommandProblem};
use super::target::{Candidate, Origin, Target, choose};
use crate::wire::Command;

/// Clone sources that are kept; when there are more, they are looked up again.
const MOST_SOURCES: usize = 64;

/// A directory of a file system that is open for writing, to receive subvolumes in.
#[derive(Debug)]
pub struct ImageTarget {
    directory: Directory,
    current: Option<Receiving>,
}

impl ImageTarget {
    /// Receives in `directory`.
    pub fn new(directory: Directory) -> Self {
        Self { directory, current: None }
    }
}

impl Target for ImageTarget {
    fn begin(
        &mut self,
        name: &[u8],
        sent: Origin,
        parent: Option<Origin>,
    ) -> Result<(), CommandProblem> {
        self.current = None;
        let name = OsStr::from_bytes(name);
        let subvolume = match parent {
            None => {
                let root = NewInode { mode: 0o755, uid: 0, gid: 0, umask: 0, device: (0, 0) };
                self.directory.create_child_subvolume(name, &root)?
            }
            Some(parent) => {
                let parent = find(self.directory.subvolume().filesystem(), parent)?;
                self.directory.snapshot_child(name, &parent, SnapshotKind::Writable)?
            }
        };
        let names = Names::new(subvolume.root()?);
        self.current = Some(Receiving {
            subvolume,
            sent,
            names,
            new: None,
            batch: Batch::default(),
            sources: HashMap::new(),
            errors: VecDeque::new(),
        });
        Ok(())
    }

    fn apply(&mut self, command: &Command<'_>) -> Result<(), CommandError> {
        let missing = || CommandError::of(command, CommandProblem::NoSubvolume);
        self.current.as_mut().ok_or_else(missing)?.apply(command)
    }

    fn apply_deferred(&mut self) -> Result<(), CommandError> {
        self.current.as_mut().map_or(Ok(()), Receiving::apply_deferred)
    }

    fn finish(&mut self) -> Result<(), CommandProblem> {
        let Receiving { subvolume, sent, .. } =
            self.current.take().ok_or(CommandProblem::NoSubvolume)?;
        Ok(subvolume.mark_received(sent.uuid, sent.ctransid)?)
    }
}

/// The subvolume that a stream names.
fn find(filesystem: &Filesystem, wanted: Origin) -> Result<Subvolume, CommandProblem> {
    let candidates = filesystem.subvolumes_of(wanted.uuid)?.into_iter().map(|subvolume| {
        let item = subvolume.root_item();
        let received = Origin { uuid: item.received_uuid(), ctransid: item.stransid.get() };
        let candidate = Candidate {
            own: Origin { uuid: item.uuid(), ctransid: item.ctransid.get() },
            received: (!received.uuid.is_nil()).then_some(received),
        };
        (candidate, subvolume)
    });
    let missing = CommandProblem::NotReceived { uuid: wanted.uuid };
    choose(candidates.collect(), wanted).ok_or(missing)
}

/// A subvolume that is being received.
#[derive(Debug)]
struct Receiving {
    subvolume: Subvolume,
    sent: Origin,
    names: Names,
    /// An inode that the stream makes, and that is not created yet.
    new: Option<NewNode>,
    /// Changes to existing inodes that are not applied yet.
    batch: Batch,
    /// Subvolumes that were cloned from.
    sources: HashMap<Origin, Names>,
    /// Errors of deferred commands.
    errors: VecDeque<CommandError>,
}

impl Receiving {
    /// Applies a command or defers it. Returns the first error that was not returned yet.
    fn apply(&mut self, command: &Command<'_>) -> Result<(), CommandError> {
        if let Command::Rename { to, .. } = *command
            && self.batch.has(to)
        {
            // It may replace an existing name.
            self.apply_all_deferred();
        }
        let most_inline_bytes = self.subvolume.filesystem().most_inline_bytes() as usize;
        let is_absorbed =
            self.new.as_mut().is_some_and(|new| new.absorb(command, most_inline_bytes));
        if !is_absorbed {
            self.apply_or_gather(command);
        }
        self.next_error()
    }

    fn apply_or_gather(&mut self, command: &Command<'_>) {
        if self.new.as_ref().is_some_and(|new| command.path() == Some(new.path())) {
            self.make_new();
        }
        if self.batch.add(command) {
            if self.batch.is_full() {
                self.apply_all_deferred();
            }
            return;
        }
        // Waiting changes to a name that does not exist do not concern the new inode of that name.
        let is_named = command.path().is_some_and(|path| self.batch.has(path));
        if adds_name(command) && !is_named {
            self.make_new();
        } else {
            self.apply_all_deferred();
        }
        let applied = self.apply_now(command);
        self.errors.extend(applied.err().map(|problem| CommandError::of(command, problem)));
    }

    /// Creates the deferred inode.
    fn make_new(&mut self) {
        let made = self.new.take().map_or(Ok(()), |new| new.make(&mut self.names));
        self.errors.extend(made.err());
    }

    /// Applies all deferred commands. A directory's times are set after the changes in it.
    fn apply_all_deferred(&mut self) {
        self.make_new();
        self.batch.run(&mut self.names, &mut self.errors);
    }

    fn apply_deferred(&mut self) -> Result<(), CommandError> {
        self.apply_all_deferred();
        self.next_error()
    }

    fn next_error(&mut self) -> Result<(), CommandError> {
        self.errors.pop_front().map_or(Ok(()), Err)
    }

    fn apply_now(&mut self, command: &Command<'_>) -> Result<(), CommandProblem> {
        match *command {
            Command::Rename { path, to } => self.rename(path, to),
            Command::Link { path, existing } => {
                let inode = self.names.inode(existing)?;
                let (directory, name) = self.names.parent_and_name(path)?;
                Ok(directory.link_child(name, &inode)?)
            }
            Command::Unlink { path } => {
                self.names.forget(path);
                let (directory, name) = self.names.parent_and_name(path)?;
                Ok(directory.remove_child(name)?)
            }
            Command::Rmdir { path } => {
                self.names.forget(path);
                let (directory, name) = self.names.parent_and_name(path)?;
                Ok(directory.remove_child_directory(name)?)
            }
            Command::Fileattr { path, attributes } => {
                let unknown = |_| CommandProblem::Unsupported("an inode flag");
                let flags = u32::try_from(attributes).map_err(unknown)?;
                Ok(self.names.inode(path)?.set_ioctl_flags(flags)?)
            }
            Command::EnableVerity { .. } => Err(CommandProblem::Unsupported("verity")),
            _ => match NewNode::of(command)? {
                Some(new) => {
                    self.new = Some(new);
                    Ok(())
                }
                None => self.change_data(command),
            },
        }
    }

    fn rename(&mut self, path: &[u8], to: &[u8]) -> Result<(), CommandProblem> {
        let (from, name) = self.names.parent_and_name(path)?;
        let (directory, new_name) = self.names.parent_and_name(to)?;
        self.names.forget(path);
        self.names.forget(to);
        Ok(from.rename_child(name, &directory, new_name, RenameMode::Replace)?)
    }
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
