//! What the stream says about inodes that are there, gathered to be done for many of them at once, by
//! several threads.
//!
//! # Invariants
//! - What is said about one inode is done in the order in which it was said, by whatever names. Between inodes
//!   the order is free: each of these changes is about its inode alone, and reads no other.
//! - Names stay as they are while anything waits.
//! - What waits is bounded, by inodes, changes and bytes.

use std::collections::HashMap;

use larder_filesystem::{Error, Inode, SetAttributes, XattrMode, parallel};

use super::attributes::{attributes_of, merged};
use super::names::Names;
use crate::receive::error::CommandError;
use crate::wire::Command;

/// Data of more bytes is not worth copying, and writing it worth nobody else's while.
const MOST_DATA_BYTES: usize = 16 << 10;
/// Changes that wait, and bytes of theirs.
const MOST_CHANGES: usize = 1024;
const MOST_BYTES: usize = 4 << 20;
/// For fewer inodes other threads are not worth waking.
const FEW_INODES: usize = 16;

/// Changes that wait, by the paths that they name.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// In the order in which they were first named.
    paths: Vec<Waiting>,
    by_path: HashMap<Vec<u8>, usize>,
    changes: usize,
    bytes: usize,
}

/// Something that is said about an inode.
#[derive(Debug)]
struct Change {
    /// Where it stands among all that were gathered.
    number: usize,
    /// The command that asked for it.
    command: &'static str,
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

/// A change that failed, and where it stood.
type Failed = (usize, CommandError);

/// A path and what is said about it.
type Waiting = (Vec<u8>, Vec<Change>);

/// A change, and by which path it names its inode.
type Named<'g> = (&'g [u8], &'g Change);

/// An inode and all that was said about it, in order.
struct Job<'g> {
    inode: Inode,
    changes: Vec<Named<'g>>,
}

impl Gathered {
    /// Takes in what a command says, if it is of the kind that is gathered.
    pub(super) fn add(&mut self, command: &Command<'_>) -> bool {
        let Some((path, what)) = What::of(command) else { return false };
        let at = match self.by_path.get(path) {
            Some(at) => *at,
            None => {
                self.by_path.insert(path.to_vec(), self.paths.len());
                self.paths.push((path.to_vec(), Vec::new()));
                self.paths.len() - 1
            }
        };
        self.bytes += path.len() + what.len_bytes();
        self.changes += 1;
        let change = Change { number: self.changes, command: command.name(), what };
        self.paths[at].1.push(change);
        true
    }

    /// Whether anything about what is at `path` waits.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.by_path.contains_key(path)
    }

    /// Whether so much waits that it is time to do it.
    pub(super) fn is_full(&self) -> bool {
        self.changes >= MOST_CHANGES || self.bytes >= MOST_BYTES
    }

    /// Does all that waits. What could not be done is added to `errors`, in the order of the stream.
    pub(super) fn settle(&mut self, names: &mut Names, errors: &mut impl Extend<CommandError>) {
        if self.paths.is_empty() {
            return;
        }
        let Self { paths, .. } = std::mem::take(self);
        let (jobs, lost) = jobs(&paths, names);
        let mut failed: Vec<Failed> = each(&jobs, Job::run).into_iter().flatten().collect();
        // Where a path leads nowhere, each command that names it says so.
        failed.extend(lost.into_iter().filter_map(|(path, change)| {
            let outcome = names.inode(path).and_then(|inode| change.what.apply(&inode));
            outcome.err().map(|error| change.failed(path, error))
        }));
        failed.sort_unstable_by_key(|(number, _)| *number);
        errors.extend(failed.into_iter().map(|(_, error)| error));
    }
}

/// What `work` makes of each, with the help of other threads if there are enough of them.
fn each<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if pieces.len() < FEW_INODES {
        pieces.iter().map(work).collect()
    } else {
        parallel::map(pieces, work)
    }
}

/// What is to be done for each inode, to which several paths may lead, and what is said about paths that lead nowhere.
fn jobs<'g>(paths: &'g [Waiting], names: &mut Names) -> (Vec<Job<'g>>, Vec<Named<'g>>) {
    let places: Vec<_> = paths.iter().map(|(path, _)| names.place(path).ok()).collect();
    let inodes = each(&places, |place| place.as_ref()?.inode().ok());
    let (mut jobs, mut lost): (Vec<Job<'_>>, Vec<_>) =
        (Vec::with_capacity(paths.len()), Vec::new());
    let mut by_number = HashMap::new();
    for ((path, changes), inode) in paths.iter().zip(inodes) {
        let named = changes.iter().map(|change| (&**path, change));
        let Some(inode) = inode else {
            lost.extend(named);
            continue;
        };
        names.note(path, inode.clone());
        let at = *by_number.entry(inode.number()).or_insert(jobs.len());
        if at == jobs.len() {
            jobs.push(Job { inode, changes: Vec::with_capacity(changes.len()) });
        }
        jobs[at].changes.extend(named);
    }
    for job in &mut jobs {
        job.changes.sort_unstable_by_key(|(_, change)| change.number);
    }
    (jobs, lost)
}

impl Job<'_> {
    fn run(&self) -> Vec<Failed> {
        let mut failed = Vec::new();
        let mut changes = self.changes.iter().peekable();
        while let Some(&(mut path, mut change)) = changes.next() {
            let outcome = if let What::Attributes(mut attributes) = change.what {
                // What follows and sets attributes too is done in the same step.
                while let Some(&&(next_path, next)) = changes.peek()
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
    fn failed(&self, path: &[u8], error: Error) -> Failed {
        let (command, path) = (self.command, path.to_vec());
        (self.number, CommandError { command, path, problem: error.into() })
    }
}

impl What {
    /// What a command says and about which path.
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
            Self::Data { offset, data } => inode.write_at(data, *offset),
            Self::Size(size) => inode.truncate(*size),
            Self::Attributes(attributes) => inode.set_attributes(attributes),
            Self::Xattr { name, data } => inode.set_xattr(name, data, XattrMode::Any),
            Self::NoXattr { name } => inode.remove_xattr(name),
        }
    }
}
