//! Sending snapshots as streams.

use std::io::Write;
use std::sync::Arc;

pub use larder_stream::{SendError, SendProgress, Sent, Version as StreamVersion};

use larder_filesystem::SubvolumeInfo;
use larder_format::Uuid;

use crate::{Result, Subvolume};

/// How a snapshot is sent: a [`Subvolume`], or a [`MountedSnapshot`](crate::MountedSnapshot).
#[derive(Clone, Debug)]
pub struct SendOptions<S = Subvolume> {
    /// Version of the stream.
    pub version: StreamVersion,
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

impl<S> Default for SendOptions<S> {
    /// Everything, in a stream of version 1 with only this snapshot.
    fn default() -> Self {
        Self {
            version: StreamVersion::V1,
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

impl Subvolume {
    /// Sends this read-only snapshot to `output` in the format of `btrfs send`, whole or as the
    /// difference from a parent. All snapshots must come from one open file system.
    ///
    /// The stream of a snapshot is the same each time. After an error, `output` has the beginning
    /// of a stream, which a receiver recognizes as truncated.
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
            progress: options.progress.clone(),
            ..larder_stream::SendOptions::default()
        };
        larder_stream::send(self.inner(), &options, output)
    }

    /// The one among several snapshots that probably differs least from this: a snapshot of the
    /// same subvolume, or one of the two of the other, last changed before this one, or otherwise
    /// soonest after it.
    pub fn closest_relative<'a>(&self, others: &'a [Subvolume]) -> Result<Option<&'a Subvolume>> {
        let own = Relative::of(&self.info()?);
        let infos = others.iter().map(|other| Ok((Relative::of(&other.info()?), other)));
        Ok(own.closest(infos.collect::<Result<Vec<_>>>()?))
    }
}

/// How near two snapshots are to each other.
pub(crate) struct Relative {
    pub(crate) uuid: Uuid,
    pub(crate) parent_uuid: Uuid,
    /// The transaction that last changed it.
    pub(crate) generation: u64,
}

impl Relative {
    fn of(info: &SubvolumeInfo) -> Self {
        let SubvolumeInfo { uuid, parent_uuid, change_generation: generation, .. } = *info;
        Self { uuid, parent_uuid, generation }
    }

    /// The one that probably differs least from this.
    pub(crate) fn closest<'a, S>(&self, others: Vec<(Self, &'a S)>) -> Option<&'a S> {
        let is_near = |other: &Self| {
            let is_sibling = !self.parent_uuid.is_nil() && self.parent_uuid == other.parent_uuid;
            is_sibling || self.parent_uuid == other.uuid || self.uuid == other.parent_uuid
        };
        let distance = |other: &Self| {
            let is_later = other.generation > self.generation;
            (is_later, self.generation.abs_diff(other.generation))
        };
        let near = others.into_iter().filter(|(other, _)| is_near(other));
        near.min_by_key(|(other, _)| distance(other)).map(|(_, found)| found)
    }
}
