//! The end of the last handle of a file system that is open for writing.
//!
//! # Invariants
//! - The last handle does not commit: a commit may fail and take long, the thread may be panicking,
//!   and the process may be one that was forked. The caller commits, with
//!   [`Filesystem::close`](super::filesystem::Filesystem::close) or
//!   [`sync`](super::filesystem::Filesystem::sync).
//! - Changes are never lost in silence: without a commit after them a message says so, as an event of
//!   `tracing`, or on standard error if no program collects those.

use std::sync::Arc;

use crate::core::shared::Core;

/// In the handles that callers have, not in those that a commit makes for itself.
pub(crate) struct LastHandle {
    core: Arc<Core>,
}

impl LastHandle {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: core.clone() }
    }
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        let Some(writer) = self.core.try_writer() else { return };
        // After an error that made it read-only each call has said so.
        if writer.manager.aborted().is_some() || !writer.has_changes() {
            return;
        }
        let generation = writer.manager.durable_generation();
        let message = format!(
            "a btrfs file system was dropped with changes: those since the last commit, generation \
             {generation}, are lost, except in files that were synced; Filesystem::close makes all \
             of them durable"
        );
        if tracing::enabled!(tracing::Level::ERROR) {
            tracing::error!("{message}");
        } else {
            eprintln!("larder: {message}");
        }
    }
}
