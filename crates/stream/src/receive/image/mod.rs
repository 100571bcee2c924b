//! Receiving into a file system that this process has open for writing.
//!
//! The most common commands are batched (`applier.rs`): a new inode is created in one step, with its name,
//! attributes and short content, once the stream moves on; changes to existing inodes are applied
//! to many of them at once, by several threads; attributes that are set again and again, above all
//! the times of directories, are set once.

mod applier;
mod attributes;
mod batch;
mod changes;
mod checked;
mod data;
mod names;
mod new;
mod original;

use std::ffi::OsStr;

use larder_filesystem::{Directory, Filesystem, NewInode, SnapshotKind, Subvolume};
use larder_platform::OsStrExt;

use self::applier::Applier;
pub use self::changes::Changes;
pub use self::checked::Checked;
use self::names::Names;
use super::error::{CommandError, CommandProblem};
use super::target::{Base, Candidate, Origin, Target, choose};
use crate::wire::Command;

/// The user and the group of inodes whose owner no command has set.
const ROOT: (u32, u32) = (0, 0);
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

/// A subvolume that is being received.
#[derive(Debug)]
struct Receiving {
    subvolume: Subvolume,
    sent: Origin,
    applier: Applier,
}

impl Target for ImageTarget {
    fn begin(&mut self, name: &[u8], sent: Origin, base: Base<'_>) -> Result<(), CommandProblem> {
        self.current = None;
        let name = OsStr::from_bytes(name);
        let snapshot = |of| self.directory.snapshot_child(name, &of, SnapshotKind::Writable);
        let subvolume = match base {
            Base::Empty => {
                let root = NewInode { mode: 0o755, uid: 0, gid: 0, umask: 0, device: (0, 0) };
                self.directory.create_child_subvolume(name, &root)?
            }
            Base::Parent(parent) => {
                snapshot(find(self.directory.subvolume().filesystem(), parent)?)?
            }
            Base::Checkpoint(name) => {
                let root = self.directory.child(OsStr::new(name))?;
                if !root.is_subvolume_root() {
                    return Err(CommandProblem::Invalid("its checkpoint is no subvolume"));
                }
                snapshot(root.subvolume().clone())?
            }
        };
        let names = Names::in_subvolume(subvolume.root()?);
        let applier = Applier::new(subvolume.filesystem().clone(), names, sent.uuid, ROOT);
        self.current = Some(Receiving { subvolume, sent, applier });
        Ok(())
    }

    fn apply(&mut self, command: &Command<'_>) -> Result<(), CommandError> {
        let missing = || CommandError::of(command, CommandProblem::NoSubvolume);
        self.current.as_mut().ok_or_else(missing)?.applier.apply(command)
    }

    fn apply_deferred(&mut self) -> Result<(), CommandError> {
        let Some(receiving) = &mut self.current else { return Ok(()) };
        receiving.applier.apply_deferred()
    }

    fn take_checkpoint(&mut self, name: &str) -> Result<(), CommandProblem> {
        let current = self.current.as_ref().ok_or(CommandProblem::NoSubvolume)?;
        let name = OsStr::new(name);
        self.directory.snapshot_child(name, &current.subvolume, SnapshotKind::ReadOnly)?;
        Ok(current.subvolume.filesystem().sync()?)
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
            is_read_only: item.is_read_only(),
        };
        (candidate, subvolume)
    });
    choose(candidates.collect(), wanted)
}
