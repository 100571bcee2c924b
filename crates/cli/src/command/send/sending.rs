//! What one command sends.

use std::ffi::OsString;
use std::sync::Arc;

use larder::{SendOptions, StreamVersion};

use super::snapshot::Snapshot;

/// What is sent, and how.
pub struct Sending<'a, S> {
    /// The snapshots as the user names them.
    pub names: &'a [OsString],
    pub snapshots: Vec<S>,
    pub parent: Option<S>,
    pub clone_sources: Vec<S>,
    pub version: StreamVersion,
    pub compressed_data: bool,
    pub no_data: bool,
    pub is_verbose: bool,
    pub is_quiet: bool,
}

impl<S: Snapshot> Sending<'_, S> {
    pub fn parent_of(&self, snapshot: &S) -> anyhow::Result<Option<S>> {
        match &self.parent {
            Some(parent) => Ok(Some(parent.clone())),
            None => Ok(snapshot.closest_relative(&self.clone_sources)?.cloned()),
        }
    }

    /// For a stream of its own.
    pub fn options(&self, parent: Option<S>) -> SendOptions<S> {
        SendOptions {
            version: self.version,
            parent,
            clone_sources: self.clone_sources.clone(),
            compressed_data: self.compressed_data,
            no_data: self.no_data,
            begins_stream: true,
            ends_stream: true,
            progress: Arc::default(),
        }
    }

    /// Tells that a snapshot begins. Returns its name.
    pub fn begin(&self, number: usize) -> std::ffi::os_str::Display<'_> {
        let name = self.names[number].display();
        if !self.is_quiet {
            eprintln!("At subvol {name}");
        }
        name
    }

    pub fn tell_length(&self, number: usize, len_bytes: u64) {
        if self.is_verbose {
            eprintln!("{}: {len_bytes} bytes were sent", self.names[number].display());
        }
    }
}
