//! A batch of changes to existing inodes, which several threads apply.
//!
//! # Invariants
//! - All changes of one inode are applied in the order of the stream, whatever names they use.
//!   Changes of different inodes may be applied in any order: each concerns one inode only and
//!   reads no other.
//! - A change for a certain inode changes no other.
//! - No command changes a name while a batch waits. Other users may. A batch changes the inode that
//!   the commands made or used, also if another inode has its name by then.
//! - A batch is bounded in inodes, changes and bytes.
//!
//! A thread that finds an inode with one name changes it while its leaf is at hand. If an inode has
//! more names, all of its changes are gathered first.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;

use larder_filesystem::{Error, Inode, SetAttributes, XattrMode};
use larder_platform::OsStrExt;

use super::attributes::{attributes_of, merged};
use super::checked::Checked;
use super::names::{InodeByPath, Names};
use crate::receive::error::{CommandError, CommandProblem};
use crate::wire::{Action, Command, CommandKind};

/// Larger data is not worth copying or passing to another thread.
const MOST_DATA_BYTES: usize = 16 << 10;
/// The most changes that wait, and the most bytes of their data.
const MOST_CHANGES: usize = 2048;
const MOST_BYTES: usize = 4 << 20;
/// For fewer inodes, waking other threads does not pay.
const FEW_INODES: usize = 16;

/// Changes that wait, by path.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// In order of first use.
    paths: Vec<Waiting>,
    by_path: HashMap<Vec<u8>, usize>,
    changes: usize,
    bytes: usize,
}

/// A change to an inode.
#[derive(Debug)]
struct Change {
    /// Its index in the batch.
    number: usize,
    /// Its command.
    command: CommandKind,
    /// The inode that it is for.
    checked: Checked,
    what: What,
}

#[derive(Debug)]
enum What {
    Data { offset: u64, data: Vec<u8> },
    Size(u64),
    Attributes(SetAttributes),
    Xattr { name: Vec<u8>, data: Vec<u8> },
    NoXattr { name: Vec<u8> },
}

/// A change that failed, and its index.
type Failed = (usize, CommandError);

/// A path and its changes.
#[derive(Debug)]
struct Waiting {
    path: Vec<u8>,
    /// The inode, if it was known when its first change came.
    inode: Option<Inode>,
    changes: Vec<Change>,
}

/// A change, and the path that it names its inode by.
type Named<'g> = (&'g [u8], &'g Change);

/// An inode and all its changes, in order.
struct Job<'g> {
    inode: Inode,
    changes: Vec<Named<'g>>,
}

impl Batch {
    /// Adds the change of a command to the inode that was `checked`, if changes of that kind can
    /// wait.
    pub(super) fn add(&mut self, command: &Command<'_>, checked: Checked, names: &Names) -> bool {
        let Some((path, what)) = What::of(command) else { return false };
        let at = match self.by_path.get(path) {
            Some(at) => *at,
            None => {
                self.by_path.insert(path.to_vec(), self.paths.len());
                let (inode, changes) = (names.last_at(path), Vec::new());
                self.paths.push(Waiting { path: path.to_vec(), inode, changes });
                self.paths.len() - 1
            }
        };
        self.bytes += path.len() + what.len_bytes();
        self.changes += 1;
        let change = Change { number: self.changes, command: command.kind(), checked, what };
        self.paths[at].changes.push(change);
        true
    }

    /// Whether any change to the inode at `path` waits.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.by_path.contains_key(path)
    }

    /// Whether the batch is large enough to be applied.
    pub(super) fn is_full(&self) -> bool {
        self.changes >= MOST_CHANGES || self.bytes >= MOST_BYTES
    }

    /// Applies all changes. Adds failures to `errors`, in the order of the stream.
    pub(super) fn run(&mut self, names: &mut Names, errors: &mut impl Extend<CommandError>) {
        if self.paths.is_empty() {
            return;
        }
        let Self { paths, .. } = std::mem::take(self);
        let placed: Vec<Placed<'_>> = paths
            .iter()
            .map(|Waiting { path, inode, changes }| {
                let known = inode.clone().map(InodeByPath::Known);
                Placed { path, place: known.or_else(|| names.place(path).ok()), changes }
            })
            .collect();
        let mut failed: Vec<Failed> = Vec::new();
        let mut others: Vec<Named<'_>> = Vec::new();
        // Neighbours in the tree stay neighbours.
        let mut shared: BTreeMap<(u64, u64), Job<'_>> = BTreeMap::new();
        for (placed, found) in placed.iter().zip(each(&placed, Placed::run)) {
            match found {
                PathOutcome::Done(failures) => failed.extend(failures),
                PathOutcome::Shared(inode) => shared
                    .entry((inode.subvolume().id(), inode.number()))
                    .or_insert_with(|| Job { inode, changes: Vec::new() })
                    .changes
                    .extend(placed.named()),
                PathOutcome::Nowhere => others.extend(placed.named()),
            }
        }
        let mut shared: Vec<Job<'_>> = shared.into_values().collect();
        for job in &mut shared {
            job.changes.sort_unstable_by_key(|(_, change)| change.number);
        }
        failed.extend(each(&shared, Job::run).into_iter().flatten());
        // If a path does not exist, each of its commands fails.
        failed.extend(others.into_iter().filter_map(|(path, change)| {
            let inode = names.inode(path);
            let outcome = inode.map_err(CommandProblem::from).and_then(|inode| {
                change.checked.check(&inode)?;
                Ok(change.what.apply(&inode)?)
            });
            outcome.err().map(|problem| change.failed(path, problem))
        }));
        failed.sort_unstable_by_key(|(number, _)| *number);
        errors.extend(failed.into_iter().map(|(_, error)| error));
    }
}

/// The result of `work` for each piece. Other threads help if there are enough pieces.
fn each<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if pieces.len() < FEW_INODES {
        pieces.iter().map(work).collect()
    } else {
        larder_parallel::map_in_stretches(pieces, work)
    }
}

/// A path, the place of its inode, and its changes.
struct Placed<'g> {
    path: &'g [u8],
    place: Option<InodeByPath<'g>>,
    changes: &'g [Change],
}

/// The outcome for a path.
enum PathOutcome {
    /// The changes are applied, except for these failures.
    Done(Vec<Failed>),
    /// The inode has other names, which may have changes too.
    Shared(Inode),
    /// There is no inode, or it cannot be reached.
    Nowhere,
}

impl<'g> Placed<'g> {
    fn run(&self) -> PathOutcome {
        let inode = self.place.as_ref().and_then(|place| place.inode().ok());
        match inode {
            Some(inode) if inode.item().nlink.get() == 1 => {
                PathOutcome::Done(Job { inode, changes: self.named().collect() }.run())
            }
            Some(inode) => PathOutcome::Shared(inode),
            None => PathOutcome::Nowhere,
        }
    }

    fn named(&self) -> impl Iterator<Item = Named<'g>> {
        self.changes.iter().map(|change| (self.path, change))
    }
}

impl Job<'_> {
    fn run(&self) -> Vec<Failed> {
        // If it is not done at once, or fails, each change reports its own error.
        if let Some((content, times)) = self.rewrite()
            && self
                .inode
                .clone()
                .into_file()
                .and_then(|file| file.rewrite(content, &times))
                .is_ok_and(|is_done| is_done)
        {
            return Vec::new();
        }
        self.run_each()
    }

    /// The whole new content of the file, and its times, if the changes do nothing else.
    fn rewrite(&self) -> Option<(&[u8], SetAttributes)> {
        if self.changes.iter().any(|(_, change)| change.checked.check(&self.inode).is_err()) {
            return None;
        }
        let ((_, first), mut rest) = self.changes.split_first()?;
        let What::Data { offset: 0, data } = &first.what else { return None };
        let len_bytes = data.len() as u64;
        match rest.split_first() {
            Some(((_, Change { what: What::Size(size), .. }), behind)) if *size == len_bytes => {
                rest = behind;
            }
            _ if self.inode.size_bytes() > len_bytes => return None,
            _ => {}
        }
        let times = rest.iter().try_fold(SetAttributes::default(), |times, (_, change)| {
            let What::Attributes(later) = &change.what else { return None };
            merged(&times, later)
        })?;
        Some((data, times))
    }

    fn run_each(&self) -> Vec<Failed> {
        let mut failed = Vec::new();
        let (mut changes, inode) = (Vec::new(), &self.inode);
        for &(path, change) in &self.changes {
            match change.checked.check(inode) {
                Ok(()) => changes.push((path, change)),
                Err(problem) => failed.push(change.failed(path, problem)),
            }
        }
        let mut changes = changes.into_iter().peekable();
        while let Some((mut path, mut change)) = changes.next() {
            let outcome = if let What::Attributes(mut attributes) = change.what {
                // Following changes of attributes are applied in the same step.
                while let Some(&(next_path, next)) = changes.peek()
                    && let What::Attributes(later) = &next.what
                    && let Some(both) = merged(&attributes, later)
                {
                    (attributes, path, change) = (both, next_path, next);
                    changes.next();
                }
                self.inode.set_attributes(&attributes)
            } else {
                change.what.apply(&self.inode)
            };
            failed.extend(outcome.err().map(|error| change.failed(path, error)));
        }
        failed
    }
}

impl Change {
    fn failed(&self, path: &[u8], problem: impl Into<CommandProblem>) -> Failed {
        let (action, path) = (Action::Command(self.command), path.to_vec());
        (self.number, CommandError { action, path, problem: problem.into() })
    }
}

impl What {
    /// The path and the change of a command.
    fn of<'c>(command: &Command<'c>) -> Option<(&'c [u8], Self)> {
        if let Some((path, attributes)) = attributes_of(command) {
            return Some((path, Self::Attributes(attributes)));
        }
        match *command {
            Command::Write { path, offset, data } if data.len() <= MOST_DATA_BYTES => {
                Some((path, Self::Data { offset, data: data.to_vec() }))
            }
            Command::Truncate { path, size } => Some((path, Self::Size(size))),
            Command::SetXattr { path, name, data } => {
                Some((path, Self::Xattr { name: name.to_vec(), data: data.to_vec() }))
            }
            Command::RemoveXattr { path, name } => {
                Some((path, Self::NoXattr { name: name.to_vec() }))
            }
            _ => None,
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            Self::Data { data, .. } => data.len(),
            Self::Xattr { name, data } => name.len() + data.len(),
            Self::NoXattr { name } => name.len(),
            Self::Size(_) | Self::Attributes(_) => 0,
        }
    }

    fn apply(&self, inode: &Inode) -> Result<(), Error> {
        match self {
            Self::Data { offset, data } => inode.clone().into_file()?.write_at(data, *offset),
            Self::Size(size) => inode.clone().into_file()?.set_len(*size),
            Self::Attributes(attributes) => inode.set_attributes(attributes),
            Self::Xattr { name, data } => {
                inode.set_xattr(OsStr::from_bytes(name), data, XattrMode::Any)
            }
            Self::NoXattr { name } => inode.remove_xattr(OsStr::from_bytes(name)),
        }
    }
}
