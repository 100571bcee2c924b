//! Progress of copying to devices that missed commits, which opening for writing waits for.

use std::sync::{Mutex, PoisonError};

use larder::{OpenOptions, ResyncProgress};

use crate::output::is_error_terminal;
use crate::progress::Progress;

/// Shows the progress on a terminal. Elsewhere it reports each tenth.
pub fn shown(options: OpenOptions) -> OpenOptions {
    let shown = Mutex::new(Shown::default());
    options.resync_progress(move |now| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if is_error_terminal() { shown.draw(now) } else { shown.report(now) }
    })
}

#[derive(Default)]
struct Shown {
    line: Option<Progress>,
    /// Tenths that were reported.
    tenths: u64,
}

impl Shown {
    fn draw(&mut self, now: ResyncProgress) {
        if now.done_bytes == now.total_bytes {
            self.line = None;
            return;
        }
        let line = self.line.get_or_insert_with(Progress::of_bytes);
        line.expect(now.total_bytes);
        line.set(now.done_bytes);
    }

    fn report(&mut self, now: ResyncProgress) {
        let ResyncProgress { done_bytes, total_bytes } = now;
        let tenths = u128::from(done_bytes) * 10 / u128::from(total_bytes.max(1));
        let tenths = u64::try_from(tenths).unwrap_or_default();
        if tenths > self.tenths {
            tracing::info!(
                "{tenths}0 % of the {total_bytes} bytes that devices may have missed are looked at"
            );
        }
        // The options may open other devices later.
        self.tenths = if done_bytes == total_bytes { 0 } else { tenths };
    }
}
