//! Progress of an accounting.

use std::ops::ControlFlow;

use larder::accounting::{AccountingPhase, AccountingProgress};

use crate::interrupt;
use crate::progress::Progress;

/// Shows how far an accounting is, and stops it once a signal has come.
pub struct Accounted {
    bar: Progress,
    phase: Option<AccountingPhase>,
}

impl Accounted {
    pub fn new() -> Self {
        Self { bar: Progress::of_steps(0), phase: None }
    }

    pub fn observe(&mut self, now: AccountingProgress) -> ControlFlow<()> {
        if self.phase.replace(now.phase) != Some(now.phase) {
            let phase = match now.phase {
                AccountingPhase::Trees => "reading trees",
                AccountingPhase::Files => "reading files",
                AccountingPhase::Extents => "adding up extents",
            };
            self.bar.start(phase, now.total);
        }
        self.bar.expect(now.total);
        self.bar.set(now.done);
        match interrupt::check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
