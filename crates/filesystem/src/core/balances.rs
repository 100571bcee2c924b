//! The balance that goes on, or went on before.

use larder_format::item::BalanceItem;
use larder_transaction::BalanceProgress;
use parking_lot::{Condvar, Mutex};

/// How a balance is to end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Pause,
    Cancel,
}

/// The balance that goes on, as others see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningBalance {
    pub(crate) item: BalanceItem,
    pub(crate) progress: BalanceProgress,
    pub(crate) wish: Option<Wish>,
}

/// The balance of a file system.
#[derive(Debug, Default)]
pub(crate) struct Balances {
    running: Mutex<Option<RunningBalance>>,
    /// How far the last one came.
    last: Mutex<BalanceProgress>,
    ended: Condvar,
}

/// Shows a balance until this is dropped.
pub(crate) struct ShownBalance<'b>(&'b Balances);

impl Balances {
    pub(crate) fn running(&self) -> Option<RunningBalance> {
        *self.running.lock()
    }

    pub(crate) fn last(&self) -> BalanceProgress {
        *self.last.lock()
    }

    /// Shows a balance that has the turn.
    pub(crate) fn begin(&self, item: &BalanceItem) -> ShownBalance<'_> {
        let (progress, wish) = (BalanceProgress::default(), None);
        *self.running.lock() = Some(RunningBalance { item: *item, progress, wish });
        ShownBalance(self)
    }

    /// Asks the balance that goes on to end. Returns whether there is one.
    pub(crate) fn ask(&self, wish: Wish) -> bool {
        let mut running = self.running.lock();
        running.as_mut().map(|running| running.wish = Some(wish)).is_some()
    }

    /// Waits until none goes on.
    pub(crate) fn wait(&self) {
        let mut running = self.running.lock();
        while running.is_some() {
            self.ended.wait(&mut running);
        }
    }
}

impl ShownBalance<'_> {
    pub(crate) fn note(&self, progress: &BalanceProgress) {
        *self.0.last.lock() = *progress;
        if let Some(running) = &mut *self.0.running.lock() {
            running.progress = *progress;
        }
    }

    pub(crate) fn wish(&self) -> Option<Wish> {
        self.0.running.lock().and_then(|running| running.wish)
    }
}

impl Drop for ShownBalance<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() = None;
        self.0.ended.notify_all();
    }
}
