//! Receiving snapshots from streams.

use std::io::Read;
use std::ops::ControlFlow;

use larder_stream::ImageTarget;

use crate::{Directory, ReceiveError, ReceiveEvent, ReceiveOptions, Received};

/// A directory that snapshots are received in.
pub trait ReceiveSnapshots {
    /// Receives the streams of `btrfs send` or [`SendSnapshot::send`](crate::SendSnapshot::send) in
    /// `input` as subvolumes in this directory. Parents and clone sources are found anywhere in the
    /// file system by their UUIDs.
    ///
    /// `observe` gets all events, and decides whether to go on. Each subvolume is durable,
    /// read-only and known by the UUID of its origin once it is complete. After an error the
    /// unfinished one stays as it is: it can be changed, has no received UUID, and is named in the
    /// error.
    fn receive(
        &self,
        input: impl Read,
        options: &ReceiveOptions,
        observe: &mut dyn FnMut(ReceiveEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Received, ReceiveError>;
}

impl ReceiveSnapshots for Directory {
    fn receive(
        &self,
        input: impl Read,
        options: &ReceiveOptions,
        observe: &mut dyn FnMut(ReceiveEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Received, ReceiveError> {
        larder_stream::receive(input, &mut ImageTarget::new(self.clone()), options, observe)
    }
}
