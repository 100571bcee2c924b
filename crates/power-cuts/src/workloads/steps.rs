//! The steps of a workload: its operations, and what they need.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use super::Persistence;
use super::names::Name;
use super::operation::{Operation, Region, WriteAs};

/// One step of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// An operation of the workload, or one that it needs. It may be refused.
    Do(Operation),
    /// A file or directory is synced.
    Sync(Name),
    /// All is.
    SyncAll,
}

impl Step {
    /// Something is durable when it has returned.
    pub fn is_durable(&self) -> bool {
        match self {
            Self::Do(operation) => operation.is_durable(),
            Self::Sync(_) | Self::SyncAll => true,
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Do(operation) => operation.fmt(f),
            Self::Sync(name) => write!(f, "sync {name}"),
            Self::SyncAll => f.write_str("sync all"),
        }
    }
}

pub(super) fn of(parts: &[(Operation, Persistence)]) -> Vec<Step> {
    let mut plan = Plan::default();
    for (operation, persistence) in parts {
        plan.prepare(*operation);
        plan.add(*operation);
        match persistence {
            Persistence::None => {}
            Persistence::Sync(name) => {
                plan.need(*name);
                plan.steps.push(Step::Sync(*name));
            }
            Persistence::SyncAll => plan.steps.push(Step::SyncAll),
        }
    }
    plan.steps
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    /// A file with data.
    Full,
    /// A file without.
    Empty,
    /// A pipe or symbolic link.
    Other,
}

/// Steps, and the names after them.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    names: BTreeMap<Name, Kind>,
}

impl Plan {
    fn add(&mut self, operation: Operation) {
        self.steps.push(Step::Do(operation));
        match operation {
            Operation::Create(name) => self.put(name, Kind::Empty),
            Operation::MakePipe(name) | Operation::Symlink(_, name) => self.put(name, Kind::Other),
            Operation::MakeDirectory(name) | Operation::MakeSubvolume(name) => {
                self.put(name, Kind::Directory);
            }
            Operation::Snapshot(_, name) => self.put(name, Kind::Directory),
            Operation::DeleteSubvolume(name) => {
                self.forget_inside(name);
                self.names.remove(&name);
            }
            Operation::RemoveDirectory(name)
            | Operation::Unlink(name)
            | Operation::UnlinkOpen(name) => drop(self.names.remove(&name)),
            Operation::Allocate(name, ..) | Operation::Write(name, ..) => {
                self.put(name, Kind::Full);
            }
            Operation::Truncate(name, len_bytes) => {
                self.put(name, if len_bytes == 0 { Kind::Empty } else { Kind::Full });
            }
            Operation::Link(from, to) | Operation::Clone(from, to) => {
                if let Some(kind) = self.names.get(&from) {
                    self.put(to, *kind);
                }
            }
            Operation::Rename(from, to) => self.rename(from, to),
            Operation::Exchange(one, other) => {
                let (first, second) = (self.names.remove(&one), self.names.remove(&other));
                self.names.extend(first.map(|kind| (other, kind)));
                self.names.extend(second.map(|kind| (one, kind)));
            }
            Operation::SetXattr(_) | Operation::RemoveXattr(_) | Operation::SyncData(_) => {}
        }
    }

    fn put(&mut self, name: Name, kind: Kind) {
        self.names.insert(name, kind);
    }

    fn rename(&mut self, from: Name, to: Name) {
        if let Some(kind) = self.names.remove(&from) {
            self.put(to, kind);
        }
        // What was in a renamed directory has no name of a workload any more.
        self.forget_inside(from);
    }

    fn forget_inside(&mut self, directory: Name) {
        self.names.retain(|name, _| name.parent() != directory || directory == Name::ROOT);
    }

    /// Adds what an operation needs.
    fn prepare(&mut self, operation: Operation) {
        for name in operation.names() {
            self.need_parent(name);
        }
        match operation {
            Operation::Create(name)
            | Operation::MakePipe(name)
            | Operation::MakeDirectory(name)
            | Operation::MakeSubvolume(name) => self.clear(name),
            Operation::RemoveDirectory(name) => {
                self.need(name);
                self.empty(name);
            }
            Operation::Write(name, _, Region::Append)
            | Operation::SetXattr(name)
            | Operation::SyncData(name) => self.need_file(name),
            Operation::Allocate(name, ..)
            | Operation::Write(name, ..)
            | Operation::Truncate(name, _) => {
                self.need_data(name);
            }
            Operation::RemoveXattr(name) => {
                self.need_file(name);
                self.add(Operation::SetXattr(name));
            }
            Operation::Unlink(name)
            | Operation::UnlinkOpen(name)
            | Operation::DeleteSubvolume(name) => self.need(name),
            Operation::Link(from, to)
            | Operation::Symlink(from, to)
            | Operation::Snapshot(from, to) => {
                self.need(from);
                self.clear(to);
            }
            Operation::Clone(from, to) => {
                self.need_data(from);
                self.need_file(to);
            }
            Operation::Rename(from, to) => {
                self.need(from);
                if from.is_directory() {
                    self.clear(to);
                }
            }
            Operation::Exchange(one, other) => {
                self.need(one);
                self.need(other);
            }
        }
    }

    fn need_parent(&mut self, name: Name) {
        if name != Name::ROOT {
            self.need(name.parent());
        }
    }

    /// The file or directory is there.
    fn need(&mut self, name: Name) {
        if name == Name::ROOT || self.names.contains_key(&name) {
            return;
        }
        self.need_parent(name);
        self.add(if name.is_subvolume() {
            Operation::MakeSubvolume(name)
        } else if name.is_directory() {
            Operation::MakeDirectory(name)
        } else {
            Operation::Create(name)
        });
    }

    /// It is a file.
    fn need_file(&mut self, name: Name) {
        if self.names.get(&name) == Some(&Kind::Other) {
            self.add(Operation::Unlink(name));
        }
        self.need(name);
    }

    /// It is a file with data.
    fn need_data(&mut self, name: Name) {
        self.need_file(name);
        if self.names.get(&name) == Some(&Kind::Empty) {
            self.add(Operation::Write(name, WriteAs::Buffered, Region::Append));
        }
    }

    /// Nothing has this name.
    fn clear(&mut self, name: Name) {
        if !self.names.contains_key(&name) {
            return;
        }
        if name.is_subvolume() {
            self.add(Operation::DeleteSubvolume(name));
        } else if name.is_directory() {
            self.empty(name);
            self.add(Operation::RemoveDirectory(name));
        } else {
            self.add(Operation::Unlink(name));
        }
    }

    /// A directory has no entries.
    fn empty(&mut self, directory: Name) {
        let inside = |name: &Name| *name != Name::ROOT && name.parent() == directory;
        let inside: Vec<Name> = self.names.keys().copied().filter(inside).collect();
        for name in inside {
            self.add(Operation::Unlink(name));
        }
    }
}
