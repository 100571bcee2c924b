//! Sending: a read-only snapshot as a stream, full or as an increment to a parent.
//!
//! A full send walks the tree once, in order, and makes each inode at once in its final place; a
//! directory that is needed before its number comes is made ahead. An incremental send compares the
//! trees in lockstep, and then
//! 1. *clears*: removes names that are gone, and moves what must move, out of the way if the new
//!    place is not free yet;
//! 2. *makes*: in the order of inode numbers, makes new inodes, gives those out of the way their
//!    names, and sends attributes and data;
//! 3. *finishes* directories: attributes that new entries would inherit, and times.
//!
//! After the first step the receiver has the names that both snapshots have, and names out of the
//! way that neither has: so every name of the second step is free, whatever the order.

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
use std::iter;
use std::num::NonZeroUsize;
use std::sync::Arc;

use larder_btree::Readahead;
use larder_filesystem::{Error, SendGuard, Subvolume};

use self::changes::Changes;
use self::sender::Sender;
use crate::receive::Origin;
use crate::wire::{Version, stream_header};

pub use error::SendError;
pub use progress::{Counted, SendProgress};

/// How a snapshot is sent: a [`Subvolume`], or a snapshot of a mounted file system.
#[derive(Clone, Debug)]
pub struct SendOptions<S = Subvolume> {
    /// Version of the stream. No version sends verity.
    pub version: Version,
    /// The receiver has this snapshot: only the difference is sent.
    pub parent: Option<S>,
    /// The receiver has these snapshots too: data that they share with this one is cloned.
    pub clone_sources: Vec<S>,
    /// Send compressed data as it is stored. From version 2 on.
    pub compressed_data: bool,
    /// Say which ranges of files changed and send no data.
    pub no_data: bool,
    /// A stream begins with this snapshot; otherwise it follows others in one stream.
    pub begins_stream: bool,
    /// The stream ends with this snapshot; otherwise others follow.
    pub ends_stream: bool,
    /// The progress, where it is known.
    pub progress: Arc<SendProgress>,
}

/// How a send reads.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Threads that read and verify file data, and tree blocks for an increment.
    pub readers: NonZeroUsize,
    /// How a full send reads ahead in the tree.
    pub readahead: Readahead,
}

impl<S> Default for SendOptions<S> {
    /// Everything, in a stream of version 1 with only this snapshot.
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
        }
    }
}

impl Default for Reading {
    fn default() -> Self {
        Self { readers: larder_parallel::threads(), readahead: Readahead::ForwardAlways }
    }
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of the stream.
    pub stream_bytes: u64,
    /// Inodes that were sent, in full or in part, or removed.
    pub inodes: u64,
}

/// Sends the read-only snapshot to `output`, in few and large writes. A file system that is open
/// for writing stays usable meanwhile, but the subvolumes of the send can be neither deleted nor
/// changed.
///
/// The stream of a snapshot is the same each time. After an error, the output is the start of a
/// stream, which a receiver recognizes as cut short.
pub fn send(
    snapshot: &Subvolume,
    options: &SendOptions,
    output: &mut dyn Write,
) -> Result<Sent, SendError> {
    send_reading(snapshot, options, Reading::default(), output)
}

/// Like [`send`], for measuring and testing other ways to read.
pub fn send_reading(
    snapshot: &Subvolume,
    options: &SendOptions,
    reading: Reading,
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
    let check = || {
        let mut held = iter::once(&snapshot).chain(&parent).chain(&clone_sources);
        Ok(held.try_for_each(SendGuard::check)?)
    };
    let walk = |output: &mut pipeline::Output| {
        let changes = match &options.parent {
            Some(parent) => Changes::between(parent, &snapshot, reading.readers)?,
            None => Changes::Everything,
        };
        if options.begins_stream {
            output.put_bytes(&stream_header(options.version));
        }
        Sender::new(&snapshot, &options, reading, Arc::new(changes), output).send(&check)
    };
    let sent = pipeline::run(options.version, reading.readers.get(), output, walk);
    // What is unreadable may only have moved.
    let (stream_bytes, inodes) = sent.or_else(|error| check().and(Err(error)))?;
    Ok(Sent { stream_bytes, inodes })
}

/// Keeps a subvolume unchanged until the send is over.
fn hold(subvolume: &Subvolume) -> Result<SendGuard, SendError> {
    SendGuard::new(subvolume).map_err(|error| match error {
        Error::NotReadOnly(id) => SendError::NotReadOnly(id),
        error => error.into(),
    })
}

/// The identity of a subvolume for the receiver of its stream.
pub fn origin_of(subvolume: &Subvolume) -> Origin {
    let item = subvolume.root_item();
    Origin::sent(item.uuid(), item.received_uuid(), item.ctransid.get())
}
