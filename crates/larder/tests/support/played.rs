//! Workloads of one and two operations, done to a recorded file system.
#![allow(dead_code, reason = "each test program uses a part")]

use larder::{AllocateMode, Filesystem, Inode, RenameMode, SnapshotKind, Subvolume, XattrMode};
use larder_power_cuts::{AllocateAs, History, Operation, Region, Step, Workload, WriteAs};
use larder_test_devices::Recording;

use super::synced::{Promised, State, number_of};

const S_IFIFO: u32 = 0o010_000;

/// What a workload did, and where the power may be cut.
pub(crate) struct Played {
    pub(crate) history: History<State, Promised>,
    /// The position of the recording after each step.
    pub(crate) positions: Vec<usize>,
}

/// Does a workload. What it has open stays so until the power is cut.
pub(crate) fn play(workload: &Workload, fs: &Filesystem, recording: &Recording) -> Played {
    let root = fs.subvolume("/").unwrap();
    let mut player = Player { fs, root: root.clone(), open: Vec::new() };
    let mut history = History::new(recording.position(), State::of(&root));
    let mut positions = Vec::new();
    for step in workload.steps() {
        let begun = recording.position();
        match player.step(step) {
            Ok(()) => history.note(begun, step, State::of(&root)),
            Err(error) => {
                assert!(is_refusal(&error), "{workload}: {step}: {error}");
                history.note(begun, format!("{step}: {error}"), State::of(&root));
            }
        }
        positions.push(recording.position());
        if (step.is_durable() || is_commit(step))
            && let Some(promised) = player.promise(step)
        {
            history.promise(promised, recording.position());
        }
    }
    Played { history, positions }
}

/// The library makes everything durable before it returns from this step.
fn is_commit(step: Step) -> bool {
    matches!(step, Step::Do(Operation::Snapshot(..)))
}

/// The error says that the names are not as the operation needs them. Anything else is a defect.
fn is_refusal(error: &larder::Error) -> bool {
    use larder::ErrorKind::{AlreadyExists, DirectoryNotEmpty, InvalidInput, NotFound};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | InvalidInput | NotFound)
}

struct Player<'a> {
    fs: &'a Filesystem,
    root: Subvolume,
    open: Vec<Inode>,
}

impl Player<'_> {
    fn step(&mut self, step: Step) -> larder::Result<()> {
        match step {
            Step::Do(operation) => self.operation(operation),
            Step::Sync(name) => self.root.lookup(name.path())?.sync(),
            Step::SyncAll => self.fs.sync(),
        }
    }

    /// What a step that made something durable promises, unless it was refused.
    fn promise(&self, step: Step) -> Option<Promised> {
        let name = match step {
            Step::Sync(name) | Step::Do(Operation::SyncData(name) | Operation::Write(name, ..)) => {
                name
            }
            Step::Do(_) | Step::SyncAll => return Some(Promised::Everything),
        };
        let inode = self.root.lookup(name.path()).ok()?;
        Some(Promised::Inode(number_of(&inode)))
    }

    fn operation(&mut self, operation: Operation) -> larder::Result<()> {
        let root = &self.root;
        match operation {
            Operation::Create(name) => root.create(name.path(), 0o644).map(drop),
            Operation::MakePipe(name) => {
                root.create_node(name.path(), S_IFIFO | 0o644, (0, 0)).map(drop)
            }
            Operation::MakeDirectory(name) => root.create_directory(name.path(), 0o755).map(drop),
            Operation::RemoveDirectory(name) => root.remove_directory(name.path()),
            Operation::Allocate(name, how, region) => {
                let file = root.open_file(name.path())?;
                let (offset, len) = region.in_file(file.len_bytes());
                match how {
                    AllocateAs::Grow => file.allocate(offset, len, AllocateMode::Grow),
                    AllocateAs::Keep => file.allocate(offset, len, AllocateMode::KeepSize),
                    AllocateAs::Zero => file.zero_range(offset, len, AllocateMode::Grow),
                    AllocateAs::ZeroKeep => file.zero_range(offset, len, AllocateMode::KeepSize),
                    AllocateAs::Punch => file.punch_hole(offset, len),
                }
            }
            Operation::Write(name, how, region) => self.write(name.path(), how, region),
            Operation::Clone(from, to) => {
                root.open_file(to.path())?.clone_range(&root.open_file(from.path())?, 0, 0, 0)
            }
            Operation::Link(from, to) => root.hard_link(from.path(), to.path()),
            Operation::Symlink(from, to) => root.symlink(from.path(), to.path()).map(drop),
            Operation::Unlink(name) => root.remove_file(name.path()),
            Operation::UnlinkOpen(name) => {
                self.open.push(root.lookup(name.path())?);
                root.remove_file(name.path())
            }
            Operation::Rename(from, to) => root.rename(from.path(), to.path()),
            Operation::Exchange(one, other) => {
                root.rename_with(one.path(), other.path(), RenameMode::Exchange)
            }
            Operation::SetXattr(name) => {
                root.lookup(name.path())?.set_xattr("user.one", b"value", XattrMode::Any)
            }
            Operation::RemoveXattr(name) => root.lookup(name.path())?.remove_xattr("user.one"),
            Operation::Truncate(name, len_bytes) => root.open_file(name.path())?.set_len(len_bytes),
            Operation::SyncData(name) => root.lookup(name.path())?.sync_data(),
            Operation::MakeSubvolume(name) => root.create_subvolume(name.path()).map(drop),
            Operation::Snapshot(from, to) => {
                let source = self.fs.subvolume(from.path())?;
                source.snapshot_to(root, to.path(), SnapshotKind::Writable).map(drop)
            }
            Operation::DeleteSubvolume(name) => root.delete_subvolume(name.path()),
        }
    }

    fn write(&self, path: &str, how: WriteAs, region: Region) -> larder::Result<()> {
        let file = self.root.open_file(path)?;
        let (offset, len) = region.in_file(file.len_bytes());
        // Data that tells where and in which way it was written.
        let seed = offset as u8 ^ how as u8;
        let data: Vec<u8> = (0..len).map(|at| (at / 512) as u8 ^ seed | 1).collect();
        file.write_at(&data, offset)?;
        match how {
            WriteAs::Buffered => Ok(()),
            WriteAs::Direct => self.fs.write_back(),
            WriteAs::Mapped => file.sync_data(),
        }
    }
}
