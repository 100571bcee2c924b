//! Receiving snapshots from streams.

use std::io::Read;
use std::ops::ControlFlow;

use larder_stream::ImageTarget;
pub use larder_stream::{
    CommandError, CommandProblem, Event as ReceiveEvent, ReceiveError, ReceiveOptions,
    ReceiveProblem, Received,
};

use crate::Directory;

impl Directory {
    /// Receives the streams of `btrfs send` or [`Subvolume::send`](crate::Subvolume::send) in
    /// `input` as subvolumes in this directory. Parents and clone sources are found anywhere in the
    /// file system by their UUIDs.
    ///
    /// `observe` gets all events, and decides whether to go on. Each subvolume is durable,
    /// read-only and known by the UUID of its origin once it is complete. After an error the
    /// unfinished one stays as it is: it can be changed, has no received UUID, and is named in the
    /// error.
    pub fn receive(
        &self,
        input: impl Read,
        options: &ReceiveOptions,
        observe: &mut dyn FnMut(ReceiveEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Received, ReceiveError> {
        let mut target = ImageTarget::new(crate::Inode::inner(self).clone());
        larder_stream::receive(input, &mut target, options, observe)
    }
}
