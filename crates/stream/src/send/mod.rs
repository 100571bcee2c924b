//! Sending: a read-only snapshot as a stream, whole or as what changed since a parent.
//!
//! A full send walks the tree once, in its order, and makes everything at once where it belongs; a
//! directory that is needed before its number comes is made ahead. An incremental send compares the
//! trees in lockstep, then
//! 1. *clears*: names that are no more are removed, what has to move moves, out of the way if its own
//!    place is not free yet;
//! 2. *makes*: in the order of inode numbers, what is new is made, what moved out of the way gets its
//!    name, and attributes and data follow;
//! 3. *finishes* directories: what would pass on to entries made in them, and their times.
//!
//! After the first step the names on the receiver are those that both snapshots have, and names out of
//! the way that neither has: so every name of the second step is free, in whatever order it comes.

mod ahead;
mod changes;
mod clear;
mod clone;
mod content;
mod data;
mod error;
mod file;
mod lockstep;
mod make;
mod names;
mod pipeline;
mod progress;
mod record;
mod sender;

use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;

use larder_btree::Readahead;
use larder_filesystem::{Error, SendGuard, Subvolume};
use larder_format::Uuid;

use self::changes::Changes;
use self::sender::Sender;
use crate::wire::{Version, stream_header};

pub use error::SendError;
pub use progress::{Counted, SendProgress};

/// How to send.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Version of the stream. Verity is sent by none.
    pub version: Version,
    /// The receiver has this snapshot: only what is not the same is sent.
    pub parent: Option<Subvolume>,
    /// The receiver has these snapshots as well: what they share with this one is cloned.
    pub clone_sources: Vec<Subvolume>,
    /// Data that is stored compressed is sent as it is stored. From version 2 on.
    pub compressed_data: bool,
    /// Which ranges of files changed is said instead of sending data.
    pub no_data: bool,
    /// Whether a stream begins here, or this snapshot follows others in one stream.
    pub begins_stream: bool,
    /// Whether the stream ends here, or other snapshots follow.
    pub ends_stream: bool,
    /// Is kept up to date while sending.
    pub progress: Arc<SendProgress>,
    /// Threads that read and verify file data, and blocks of the trees of an increment.
    pub readers: NonZeroUsize,
    /// What a full send reads ahead of the tree.
    pub readahead: Readahead,
}

impl Default for SendOptions {
    /// Everything, in a stream of version 1 of its own.
    fn default() -> Self {
        Self {
            version: Version::V1,
            parent: None,
            clone_sources: Vec::new(),
            compressed_data: false,
            no_data: false,
            begins_stream: true,
            ends_stream: true,
            progress: Arc::default(),
            readers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            readahead: Readahead::ForwardAlways,
        }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of the stream.
    pub stream_bytes: u64,
    /// Inodes that were sent, whole or in part, or removed.
    pub inodes: u64,
}

/// Sends the read-only snapshot to `output`, which gets few and large writes. In a file system that is open for
/// writing, others go on using it meanwhile; they can neither delete nor change what takes part in the send.
///
/// The stream of a snapshot is the same each time. After an error what was written is the start of a
/// stream that a receiver finds cut short.
pub fn send(
    snapshot: &Subvolume,
    options: &SendOptions,
    output: &mut dyn Write,
) -> Result<Sent, SendError> {
    for other in options.parent.iter().chain(&options.clone_sources) {
        if !Arc::ptr_eq(snapshot.filesystem().volume(), other.filesystem().volume()) {
            let uuid = |subvolume: &Subvolume| subvolume.root_item().uuid();
            return Err(SendError::NotTogether { snapshot: uuid(snapshot), other: uuid(other) });
        }
    }
    let snapshot = hold(snapshot)?;
    let parent = options.parent.as_ref().map(hold).transpose()?;
    let clone_sources =
        options.clone_sources.iter().map(hold).collect::<Result<Vec<_>, SendError>>()?;
    let options = SendOptions {
        parent: parent.as_deref().cloned(),
        clone_sources: clone_sources.iter().map(|held| Subvolume::clone(held)).collect(),
        ..options.clone()
    };
    let walk = |output: &mut pipeline::Output| {
        let changes = match &options.parent {
            Some(parent) => Changes::between(parent, &snapshot, options.readers)?,
            None => Changes::Everything,
        };
        if options.begins_stream {
            output.put_bytes(&stream_header(options.version));
        }
        Sender::new(&snapshot, &options, Arc::new(changes), output).send()
    };
    let (stream_bytes, inodes) =
        pipeline::run(options.version, options.readers.get(), output, walk)?;
    Ok(Sent { stream_bytes, inodes })
}

/// A subvolume as it will stay until the send is over.
fn hold(subvolume: &Subvolume) -> Result<SendGuard, SendError> {
    subvolume.guard_for_send().map_err(|error| match error {
        Error::NotReadOnly(id) => SendError::NotReadOnly(id),
        error => error.into(),
    })
}

/// How a receiver knows a subvolume: by the uuid of the one that it was received from, if it was, or by
/// its own; and the transaction that last changed it.
fn identity(subvolume: &Subvolume) -> (Uuid, u64) {
    let item = subvolume.root_item();
    let received = item.received_uuid();
    let uuid = if received.is_nil() { item.uuid() } else { received };
    (uuid, item.ctransid.get())
}
