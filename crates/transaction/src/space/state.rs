//! The states of a block group.
//!
//! ```text
//! (made in memory)               ──▶ new
//! (loaded, can be written)       ──▶ open
//! (loaded, cannot be written)    ──▶ read-only
//! new        ── its items are about to be inserted ─────────────────▶ open
//! open       ── its content is to move to others ───────────────────▶ leaving
//! leaving    ── it does not move after all ─────────────────────────▶ open
//! open, leaving ── a commit removes it, if nothing in it is in use ─▶ emptied
//! emptied    ── something in it is in use after all ────────────────▶ as before
//! emptied    ── its items and its chunk are removed ────────────────▶ (gone)
//! ```
//!
//! # Invariants
//! - Addresses are allocated from new and open groups only.
//! - Only the thread that edits the bookkeeping trees changes the state of a group that others can
//!   find. So a group that it sees open has items, and stays until that thread removes it.
//! - A thread that allocates counts the bytes before it looks at the state, and a thread that
//!   empties a group changes the state before it looks at the counts: one of the two notices.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::SeqCst;

/// The state of a block group. The module says how it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// It has no items in the trees yet.
    New,
    /// It has items.
    Open,
    /// It has items, and its content moves to other groups.
    Leaving,
    /// Nothing in it is in use, and the commit in progress removes it.
    Emptied,
    /// Too few of its devices are there to write it.
    ReadOnly,
}

impl GroupState {
    const ALL: [Self; 5] = [Self::New, Self::Open, Self::Leaving, Self::Emptied, Self::ReadOnly];

    /// Whether addresses may be allocated.
    pub fn allocates(self) -> bool {
        matches!(self, Self::New | Self::Open)
    }

    /// Whether content may change, so that its profile counts as one that is wanted.
    pub(super) fn is_in_use(self) -> bool {
        self.allocates() || self == Self::Leaving
    }
}

/// A state that threads share.
#[derive(Debug)]
pub(super) struct SharedState(AtomicU8);

impl SharedState {
    pub(super) fn new(state: GroupState) -> Self {
        Self(AtomicU8::new(state as u8))
    }

    pub(super) fn get(&self) -> GroupState {
        GroupState::ALL[usize::from(self.0.load(SeqCst))]
    }

    /// Changes `from` to `to`. Returns whether it was `from`.
    pub(super) fn change(&self, from: GroupState, to: GroupState) -> bool {
        self.0.compare_exchange(from as u8, to as u8, SeqCst, SeqCst).is_ok()
    }
}
