//! How far the work is, whether it goes on, and what could not be read.

use std::ops::ControlFlow;

use larder_filesystem::{Error, Filesystem, Result};

/// Most errors of unreadable blocks whose texts are kept.
const MOST_PROBLEMS: usize = 20;

/// What is told and asked meanwhile.
pub(crate) struct Watch<'a> {
    observe: &'a mut dyn FnMut(AccountingProgress) -> ControlFlow<()>,
    pub(crate) problems: Vec<String>,
    pub(crate) unreadable: u64,
}

/// How far an accounting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountingProgress {
    /// What is being done.
    pub phase: AccountingPhase,
    /// Steps of this phase that are done.
    pub done: u64,
    /// All steps of this phase, as far as is known.
    pub total: u64,
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountingPhase {
    /// Reading the inner blocks of trees.
    Trees,
    /// Reading the leaves of subvolumes.
    Files,
    /// Adding up extents.
    Extents,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        filesystem: &Filesystem,
        observe: &'a mut dyn FnMut(AccountingProgress) -> ControlFlow<()>,
    ) -> Result<Self> {
        if filesystem.is_writable() {
            return Err(Error::Invalid(
                "the file system is open for writing, and changes; keep a state of it",
            ));
        }
        Ok(Self { observe, problems: Vec::new(), unreadable: 0 })
    }

    pub(crate) fn tell(&mut self, phase: AccountingPhase, done: u64, total: u64) -> Result<()> {
        match (self.observe)(AccountingProgress { phase, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Interrupted),
        }
    }

    /// Notes a block that cannot be read, or an item that breaks the rules.
    pub(crate) fn note(&mut self, problem: &Error) {
        self.unreadable += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem.to_string());
        }
    }
}
