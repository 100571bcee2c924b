//! Making single files and directories durable: through logs where they can take it, and else by a commit.
//!
//! # Invariants
//! - Whoever asks has its data in the trees before it queues up. One thread at a time writes logs, for all
//!   who have queued up by then; they return as soon as that is done, whoever writes next.
//! - Each change of an inode raises its sequence number. What did not change since it was synced, or in the
//!   running transaction, is durable.
//! - Where it is not certain that a log says all that must survive, there is a commit.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use larder_transaction::LogWriter;
use parking_lot::{Condvar, Mutex};

use crate::core::writer::{Changed, Writer};
use crate::error::Result;
use crate::filesystem::handle::Filesystem;
use crate::inode::handle::Inode;
use crate::inode::live::InodeId;
use crate::inode::metadata::FileType;
use crate::log::plan::LogPlan;

/// Those who wait for what they did to be durable.
#[derive(Default)]
pub(crate) struct Syncs {
    queue: Mutex<Queue>,
    /// Somebody has written logs.
    written: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Requests that nobody has taken up.
    waiting: Vec<Arc<Request>>,
    /// Somebody writes logs for those who waited before.
    is_writing: bool,
}

/// The turn of the thread that writes logs. Every request in it gets an answer, also while a panic unwinds.
struct Turn<'s> {
    syncs: &'s Syncs,
    requests: Vec<Arc<Request>>,
}

impl Syncs {
    /// Waits until `request`, which was queued, is done, or it is its turn to write logs for all who wait.
    fn wait(&self, request: &Request) -> Option<Turn<'_>> {
        let mut queue = self.queue.lock();
        loop {
            if request.outcome.get().is_some() {
                return None;
            }
            if !queue.is_writing {
                queue.is_writing = true;
                let requests = std::mem::take(&mut queue.waiting);
                return Some(Turn { syncs: self, requests });
            }
            self.written.wait(&mut queue);
        }
    }
}

impl Turn<'_> {
    fn answer(&self, outcome: &Changed<()>) {
        for request in &self.requests {
            request.outcome.get_or_init(|| outcome.clone());
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Without an answer so far, this unwinds.
        self.answer(&Err(larder_transaction::Error::Panicked));
        self.syncs.queue.lock().is_writing = false;
        self.syncs.written.notify_all();
    }
}

struct Request {
    id: InodeId,
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
        let Some(live) = self.try_live_inode() else { return Ok(()) };
        if self.file_type() == FileType::Regular {
            self.flush()?;
        }
        let durable_generation = self.writer()?.manager.durable_generation();
        let Some(sequence) = live.unsynced(durable_generation) else { return Ok(()) };
        let is_directory = self.file_type() == FileType::Directory;
        self.subvolume().filesystem().sync_inode(live.id(), is_directory)?;
        live.synced(sequence);
        Ok(())
    }
}

impl Filesystem {
    fn sync_inode(&self, id: InodeId, is_directory: bool) -> Changed<()> {
        let Some(writer) = self.try_writer() else { return Ok(()) };
        let request = Arc::new(Request { id, is_directory, outcome: OnceLock::new() });
        writer.syncs.queue.lock().waiting.push(request.clone());
        if let Some(turn) = writer.syncs.wait(&request) {
            turn.answer(&self.make_durable(writer, &turn.requests));
        }
        request.outcome.get().expect("it was waited for").clone()
    }

    fn make_durable(&self, writer: &Writer, requests: &[Arc<Request>]) -> Changed<()> {
        let mut wanted: BTreeMap<InodeId, bool> = BTreeMap::new();
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
        wanted: BTreeMap<InodeId, bool>,
    ) -> Changed<bool> {
        let writer = self.try_writer().expect("it is being changed");
        let Some(plan) = LogPlan::of(writer, logs, wanted)? else { return Ok(false) };
        plan.enter(self, logs)
    }
}
