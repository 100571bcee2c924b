//! Making single files and directories durable: through logs where they can take it, and else by a commit.
//!
//! # Invariants
//! - Whoever asks has its data in the trees before it queues up. One thread at a time writes logs, for all
//!   who have queued up by then.
//! - Where it is not certain that a log says all that must survive, there is a commit.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use larder_transaction::LogWriter;
use parking_lot::Mutex;

use super::cover::Coverage;
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::{FileType, Inode};
use crate::write::node::NodeId;
use crate::write::{Changed, Writer};

/// Those who wait for what they did to be durable.
#[derive(Default)]
pub(in crate::write) struct Syncs {
    waiting: Mutex<Vec<Arc<Request>>>,
    /// Held by the one who writes logs for all who wait.
    turn: Mutex<()>,
}

struct Request {
    id: NodeId,
    is_directory: bool,
    outcome: OnceLock<Changed<()>>,
}

impl Inode {
    /// Makes what was done to this file or directory durable: of a file its data, attributes and names,
    /// of a directory its attributes and what came and went in it. Nothing happens in a file system that
    /// is open for reading.
    ///
    /// # Errors
    /// As [`Filesystem::sync`].
    pub fn sync(&self) -> Result<()> {
        let Some(node) = self.try_node() else { return Ok(()) };
        if self.file_type() == FileType::Regular {
            self.flush()?;
        }
        let is_directory = self.file_type() == FileType::Directory;
        Ok(self.subvolume().filesystem().sync_node(node.id(), is_directory)?)
    }
}

impl Filesystem {
    fn sync_node(&self, id: NodeId, is_directory: bool) -> Changed<()> {
        let Some(writer) = self.try_writer() else { return Ok(()) };
        let request = Arc::new(Request { id, is_directory, outcome: OnceLock::new() });
        writer.syncs.waiting.lock().push(request.clone());
        let _turn = writer.syncs.turn.lock();
        if let Some(outcome) = request.outcome.get() {
            return outcome.clone();
        }
        let requests = std::mem::take(&mut *writer.syncs.waiting.lock());
        let outcome = self.make_durable(writer, &requests);
        for request in requests {
            let _ = request.outcome.set(outcome.clone());
        }
        outcome
    }

    fn make_durable(&self, writer: &Writer, requests: &[Arc<Request>]) -> Changed<()> {
        let mut wanted: BTreeMap<NodeId, bool> = BTreeMap::new();
        for request in requests {
            *wanted.entry(request.id).or_default() |= request.is_directory;
        }
        let is_logged = writer.manager.write_log(|logs| self.fill_logs(logs, wanted));
        // What cannot be logged, because something cannot be read for one, may still be committed.
        if matches!(is_logged, Ok(true)) {
            return Ok(());
        }
        writer.manager.commit().map(drop)
    }

    /// Puts what is wanted into the logs. Returns whether they can take it.
    fn fill_logs(
        &self,
        logs: &mut LogWriter<'_, '_>,
        wanted: BTreeMap<NodeId, bool>,
    ) -> Changed<bool> {
        let writer = self.try_writer().expect("it is being changed");
        let Some(coverage) = Coverage::of(writer, logs, wanted)? else { return Ok(false) };
        coverage.enter(self, logs)
    }
}
