//! Snapshots as streams.

use std::io::Write;

pub use larder_stream::{SendError, Sent, Version as StreamVersion};

use crate::{Result, Subvolume};

/// How a snapshot is sent.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Version of the stream.
    pub version: StreamVersion,
    /// The receiver has this snapshot: only what differs from it is sent.
    pub parent: Option<Subvolume>,
    /// The receiver has these snapshots too: what they share with this one is cloned.
    pub clone_sources: Vec<Subvolume>,
    /// Send data that is stored compressed as it is. From version 2 on.
    pub compressed_data: bool,
    /// Say which ranges of files changed and send no data.
    pub no_data: bool,
    /// A stream begins with this snapshot; otherwise it follows others in one stream.
    pub begins_stream: bool,
    /// The stream ends with this snapshot; otherwise others follow.
    pub ends_stream: bool,
}

impl Default for SendOptions {
    /// Everything, in a stream of version 1 of its own.
    fn default() -> Self {
        Self {
            version: StreamVersion::V1,
            parent: None,
            clone_sources: Vec::new(),
            compressed_data: false,
            no_data: false,
            begins_stream: true,
            ends_stream: true,
        }
    }
}

impl Subvolume {
    /// Sends this read-only snapshot to `output` in the format of `btrfs send`, whole or as what
    /// changed since a parent. All snapshots must come from one open file system.
    ///
    /// The stream of a snapshot is the same each time. After an error, what was written is the start
    /// of a stream that a receiver finds cut short.
    pub fn send(
        &self,
        options: &SendOptions,
        output: &mut dyn Write,
    ) -> std::result::Result<Sent, SendError> {
        let inner = |subvolume: &Subvolume| subvolume.inner().clone();
        let options = larder_stream::SendOptions {
            version: options.version,
            parent: options.parent.as_ref().map(inner),
            clone_sources: options.clone_sources.iter().map(inner).collect(),
            compressed_data: options.compressed_data,
            no_data: options.no_data,
            begins_stream: options.begins_stream,
            ends_stream: options.ends_stream,
            ..larder_stream::SendOptions::default()
        };
        larder_stream::send(self.inner(), &options, output)
    }

    /// Of several snapshots the one that is likely to differ least from this: a snapshot of the same
    /// subvolume, or one of the two of the other, changed last before this one or else soonest after.
    pub fn closest_relative<'a>(&self, others: &'a [Subvolume]) -> Result<Option<&'a Subvolume>> {
        let own = self.info()?;
        let mut best = None;
        for other in others {
            let info = other.info()?;
            let is_sibling = !own.parent_uuid.is_nil() && own.parent_uuid == info.parent_uuid;
            if !is_sibling && own.parent_uuid != info.uuid && own.uuid != info.parent_uuid {
                continue;
            }
            let is_later = info.change_generation > own.change_generation;
            let rank = (is_later, own.change_generation.abs_diff(info.change_generation));
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                best = Some((rank, other));
            }
        }
        Ok(best.map(|(_, other)| other))
    }
}
