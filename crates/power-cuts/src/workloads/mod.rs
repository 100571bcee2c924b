//! All workloads of one and of two operations on a few names, within bounds.
//!
//! The bounds are those of the Automatic Crash Explorer of CrashMonkey (Mohan et al., "Finding
//! Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI 2018): its operations, files,
//! ranges of bytes, and calls that make something durable. Added are reflinks, exchanges of names,
//! files that are removed while they are open, and operations on subvolumes.
//!
//! # Invariants
//! - A workload ends with a call that makes something durable ([`Persistence`], or an operation
//!   that does so by itself).
//! - What a workload needs is made right before the operation that needs it, so that two workloads
//!   that begin with the same operations begin with the same steps.
//! - Only what an operation names is made durable, its siblings and its parents: nothing else can
//!   have been lost.

mod names;
mod operation;
mod steps;

use std::collections::BTreeSet;
use std::fmt::{self, Display};

pub use names::Name;
pub use operation::{AllocateAs, Operation, Region, WriteAs};
pub use steps::Step;

/// What follows an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// Nothing.
    None,
    /// This file or directory is synced.
    Sync(Name),
    /// All is.
    SyncAll,
}

/// Operations, each with what makes its effects durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    parts: Vec<(Operation, Persistence)>,
}

impl Workload {
    /// All workloads of one operation on files and directories.
    pub fn of_one() -> impl Iterator<Item = Self> {
        sequences(Operation::on_files(), 1)
    }

    /// All workloads of two operations on files and directories. Those that begin alike come one
    /// after the other.
    pub fn of_two() -> impl Iterator<Item = Self> {
        sequences(Operation::on_files(), 2)
    }

    /// All workloads of two operations on subvolumes and on files in them.
    pub fn of_two_on_subvolumes() -> impl Iterator<Item = Self> {
        sequences(Operation::on_subvolumes(), 2)
    }

    /// The same of three operations.
    pub fn of_three_on_subvolumes() -> impl Iterator<Item = Self> {
        sequences(Operation::on_subvolumes(), 3)
    }

    /// What to do, in order.
    pub fn steps(&self) -> Vec<Step> {
        steps::of(&self.parts)
    }
}

impl Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (operation, persistence)) in self.parts.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{operation}")?;
            match persistence {
                Persistence::None => {}
                Persistence::Sync(name) => write!(f, "; sync {name}")?,
                Persistence::SyncAll => write!(f, "; sync all")?,
            }
        }
        Ok(())
    }
}

/// All workloads of `len` of these operations.
fn sequences(operations: Vec<Operation>, len: usize) -> impl Iterator<Item = Workload> {
    let choices = vec![operations; len];
    all_of_each(choices).flat_map(|chosen| {
        let related = related(chosen.iter().copied());
        let last = chosen.len() - 1;
        let choices = chosen.iter().enumerate().map(|(index, operation)| {
            let mut after = persistence(*operation, &related);
            if index < last && !operation.is_durable() {
                after.push(Persistence::None);
            }
            after.into_iter().map(|after| (*operation, after)).collect()
        });
        all_of_each(choices.collect()).map(|parts| Workload { parts })
    })
}

/// All ways to take one of each list. The last changes first.
fn all_of_each<T: Copy>(lists: Vec<Vec<T>>) -> impl Iterator<Item = Vec<T>> {
    let count = lists.iter().map(Vec::len).product();
    (0..count).map(move |number: usize| {
        let mut rest = number;
        let pick = |list: &Vec<T>| {
            let index = rest % list.len();
            rest /= list.len();
            list[index]
        };
        let mut picked: Vec<T> = lists.iter().rev().map(pick).collect();
        picked.reverse();
        picked
    })
}

/// What may be synced after these operations.
fn related(operations: impl IntoIterator<Item = Operation>) -> BTreeSet<Name> {
    let named = operations.into_iter().flat_map(Operation::names);
    named.flat_map(|name| [name, name.sibling(), name.parent()]).collect()
}

/// What may follow an operation, to make something durable.
fn persistence(operation: Operation, related: &BTreeSet<Name>) -> Vec<Persistence> {
    if operation.is_durable() {
        return vec![Persistence::None];
    }
    related.iter().copied().map(Persistence::Sync).chain([Persistence::SyncAll]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_of_them_are_there_once() {
        let one: HashSet<Workload> = Workload::of_one().collect();
        assert_eq!(one.len(), Workload::of_one().count());
        let mut last = None;
        let mut begun = HashSet::new();
        let mut two = 0;
        for workload in Workload::of_two() {
            let first = workload.parts[0].0;
            assert!(last == Some(first) || begun.insert(first), "{workload} comes alone");
            last = Some(first);
            two += 1;
        }
        println!("{} workloads of one operation and {two} of two", one.len());
        let (two_on, three_on) =
            (Workload::of_two_on_subvolumes().count(), Workload::of_three_on_subvolumes().count());
        println!("{two_on} of two operations on subvolumes and {three_on} of three");
        // As many as the bounds of the Automatic Crash Explorer give, or more.
        assert!(one.len() >= 435 && two >= 466_382);
    }

    #[test]
    fn every_workload_ends_with_something_durable() {
        let two = Workload::of_two().step_by(1009);
        let subvolumes = Workload::of_two_on_subvolumes();
        for workload in Workload::of_one().chain(two).chain(subvolumes) {
            let steps = workload.steps();
            assert!(steps.last().is_some_and(Step::is_durable), "{workload}: {steps:?}");
        }
    }
}
