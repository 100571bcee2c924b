//! Telling the kernel something from a thread that serves requests.
//!
//! # Invariants
//! - The kernel may wait, in the thread that tells it, for requests to be served. A thread tells it
//!   only after it has [left](Place) its place among the threads that serve: enough others remain to serve any request.

use super::kernel::{MustNotWait, Notify, Tell};
use super::soon::Soon;
use crate::protocol::Notice;
use crate::protocol::abi::InitFlags;

/// The place of a thread among the threads that serve.
pub(super) trait Place {
    /// Asks whether this thread may wait for the kernel. It may if enough others remain to serve.
    fn leave(&self) -> bool;

    /// This thread, which had left, goes on with its request.
    fn come_back(&self);
}

/// A thread has left its place until this is dropped.
struct Away<'p>(&'p dyn Place);

impl<'p> Away<'p> {
    fn from(place: &'p dyn Place) -> Result<Self, MustNotWait> {
        if place.leave() { Ok(Self(place)) } else { Err(MustNotWait) }
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.come_back();
    }
}

/// The way to the kernel of a thread that has a place among the threads that serve.
pub(super) struct FromPlace<'p> {
    pub(super) kernel: &'p dyn Notify,
    pub(super) soon: &'p Soon,
    pub(super) place: &'p dyn Place,
}

impl Tell for FromPlace<'_> {
    fn now(&self, notice: &Notice) -> Result<(), MustNotWait> {
        let _away = Away::from(self.place)?;
        // It fails where the kernel knows nothing that it could forget.
        let _ = self.kernel.notify(notice);
        Ok(())
    }

    fn soon(&self, notice: Notice) {
        self.soon.post(notice);
    }

    fn features(&self) -> InitFlags {
        self.kernel.features()
    }
}
