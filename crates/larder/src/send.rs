//! Sending snapshots as streams.

use std::io::Write;

use crate::{SendError, SendOptions, Sent, StreamOrigin, Subvolume};

/// A snapshot that is sent as a stream.
pub trait SendSnapshot: Sized {
    /// Sends this read-only snapshot to `output` in the format of `btrfs send`, whole or as the
    /// difference from a parent. All snapshots must come from one open file system.
    ///
    /// The stream of a snapshot is the same each time. After an error, `output` has the beginning
    /// of a stream, which a receiver recognizes as truncated.
    fn send(&self, options: &SendOptions<Self>, output: &mut dyn Write) -> Result<Sent, SendError>;

    /// How streams name this snapshot.
    fn origin(&self) -> StreamOrigin;
}

impl SendSnapshot for Subvolume {
    fn send(&self, options: &SendOptions, output: &mut dyn Write) -> Result<Sent, SendError> {
        larder_stream::send(self, options, output)
    }

    fn origin(&self) -> StreamOrigin {
        larder_stream::origin_of(self)
    }
}
