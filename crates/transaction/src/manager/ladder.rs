//! The flushing ladder: what is tried, in order, before there is no space left.
//!
//! # Invariants
//! - There is no space left only where none comes back: who is told so has waited for everybody who was inside the
//!   door, for all deletions that had begun when he asked, and for a commit that made free what came of both.
//! - Who asks has no handle and is no deletion himself (but with [`Priority::Cleaning`]), and has nothing locked that
//!   a commit or a deletion needs: so each of these ends whoever waits for it.
//! - Those of one kind and priority who find no room stand in line, and nobody overtakes them: what comes back goes to
//!   the first.
//! - A deletion waits for commits and for other deletions' turns in line, never for their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::TransactionManager;
use super::handle::Handle;
use crate::error::{Error, Result};
use crate::space::{Priority, Reservation, SpaceKind};

/// Steps of deletions that are waited for at most before a commit makes free what came of them. It begins with one,
/// and doubles.
const MOST_STEPS: u64 = 64;

/// Something that holds space and can give it back. It may use what was promised to it before, and
/// [`attach`](TransactionManager::attach).
pub trait MakesRoom: Send + Sync {
    /// Gives back what it has beyond what it needs. It asks for no promises: that would lead here.
    fn make_room(&self, manager: &TransactionManager) -> Result<()>;

    /// Gives up what was deleted and nobody is [about to](TransactionManager::begin_cleaning) give up. It asks for
    /// promises of [`Priority::Cleaning`] only. What it cannot give up is no error.
    fn clean(&self, manager: &TransactionManager) -> Result<()>;
}

/// Those who wait for room, by what they ask for.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: [[Line; Priority::ALL.len()]; SpaceKind::ALL.len()],
}

#[derive(Debug, Default)]
struct Line {
    waiting: AtomicUsize,
    first: Mutex<()>,
}

/// The place of the first in a line.
struct Turn<'l> {
    line: &'l Line,
    _first: MutexGuard<'l, ()>,
}

impl Lines {
    fn of(&self, kind: SpaceKind, priority: Priority) -> &Line {
        &self.lines[kind as usize][priority as usize]
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.waiting.load(Relaxed) == 0
    }

    /// Waits until it is the caller's turn.
    fn stand(&self) -> Turn<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Turn { line: self, _first: self.first.lock() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.waiting.fetch_sub(1, Relaxed);
    }
}

/// What makes room, the cheapest first.
#[derive(Clone, Copy)]
enum Rung {
    /// What is queued goes into the trees, and what was promised beyond that comes back.
    Queues,
    /// Whoever is inside the door leaves.
    Door,
    /// Something of what was deleted is given up.
    Deletions,
    /// What was given up is made free.
    Commit,
    /// Block groups that this has left empty go back to the devices, for other kinds.
    EmptyGroups,
}

impl Rung {
    const ALL: [Self; 5] =
        [Self::Queues, Self::Door, Self::Deletions, Self::Commit, Self::EmptyGroups];
}

/// What somebody asks for.
#[derive(Clone, Copy)]
struct Wanted {
    kind: SpaceKind,
    len_bytes: u64,
    priority: Priority,
}

impl TransactionManager {
    /// Promises `len_bytes` of `kind`. Where there is no room it is made: by the steps that were added, by whoever is
    /// inside the door leaving it, by deletions that come to their end, by commits that release what is pinned.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when none of that helped.
    ///
    /// # Panics
    /// When there is no room and this thread has a [`Handle`].
    pub fn reserve(
        &self,
        kind: SpaceKind,
        len_bytes: u64,
        priority: Priority,
    ) -> Result<Reservation> {
        self.check_alive()?;
        let (line, wanted) = (self.lines.of(kind, priority), Wanted { kind, len_bytes, priority });
        if line.is_empty()
            && let Some(reservation) = self.attempt(wanted)?
        {
            return Ok(reservation);
        }
        let _turn = line.stand();
        self.climb(wanted)
    }

    /// Joins the running transaction with room for inserting `items` items.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn join(&self, items: u64, priority: Priority) -> Result<Handle<'_>> {
        let (kind, len_bytes) = (SpaceKind::Metadata, self.space().insertion_bytes(items));
        let (line, wanted) = (self.lines.of(kind, priority), Wanted { kind, len_bytes, priority });
        // Promised inside, so that whoever closes the door knows that such promises are given back.
        let handle = self.attach()?;
        if line.is_empty()
            && let Some(reservation) = self.attempt(wanted)?
        {
            return Ok(handle.with(reservation));
        }
        drop(handle);
        let _turn = line.stand();
        let reservation = self.climb(wanted)?;
        self.join_with(reservation)
    }

    fn attempt(&self, wanted: Wanted) -> Result<Option<Reservation>> {
        match self.space().try_reserve(wanted.kind, wanted.len_bytes, wanted.priority) {
            Ok(reservation) => Ok(Some(reservation)),
            Err(Error::NoSpace { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tries one rung after the other, and all of them again as long as there are deletions to wait for.
    fn climb(&self, wanted: Wanted) -> Result<Reservation> {
        let asked = self.cleanings.now();
        let (mut steps, mut were_cleaning) = (1, true);
        while were_cleaning {
            were_cleaning = false;
            for rung in Rung::ALL {
                if let Some(reservation) = self.attempt(wanted)? {
                    return Ok(reservation);
                }
                match rung {
                    Rung::Queues => self.each_step(|step| step.make_room(self))?,
                    Rung::Door => drop(self.close()),
                    Rung::Deletions if wanted.priority == Priority::Cleaning => {}
                    Rung::Deletions => {
                        self.each_step(|step| step.clean(self))?;
                        were_cleaning = self.cleanings.wait(asked, steps);
                    }
                    Rung::Commit => drop(self.commit()?),
                    Rung::EmptyGroups => self.commit_empty_groups()?,
                }
            }
            steps = (2 * steps).min(MOST_STEPS);
        }
        let Wanted { kind, len_bytes, .. } = wanted;
        self.attempt(wanted)?.ok_or(Error::NoSpace { kind, len_bytes })
    }

    fn each_step(&self, act: impl FnMut(&Arc<dyn MakesRoom>) -> Result<()>) -> Result<()> {
        let steps = self.steps.read().clone();
        steps.iter().try_for_each(act)
    }
}
