//! Telling the kernel something from a thread that serves requests.
//!
//! # Invariants
//! - A thread that tells the kernel something may wait there for requests to be served. So it first
//!   [gives up](Slot::leave) its slot among the threads that serve: enough others remain to serve
//!   any request.

use super::kernel::{MustNotWait, Notify, Tell};
use super::soon::Soon;
use crate::protocol::Notice;
use crate::protocol::abi::InitFlags;

/// The slot of a thread among the threads that serve.
pub(super) trait Slot: Sync {
    /// Gives it up, so that this thread may wait for the kernel. Returns false if too few others
    /// would remain to serve.
    fn leave(&self) -> bool;

    /// Takes it back.
    fn come_back(&self);

    /// See [`Tell::caller_waits`].
    fn caller_waits(&self) -> bool {
        true
    }
}

/// A thread has given up its slot until this is dropped.
struct Away<'s>(&'s dyn Slot);

impl<'s> Away<'s> {
    fn from(slot: &'s dyn Slot) -> Result<Self, MustNotWait> {
        if slot.leave() { Ok(Self(slot)) } else { Err(MustNotWait) }
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.come_back();
    }
}

/// The way to the kernel of a thread that has a slot.
pub(super) struct FromSlot<'s> {
    pub(super) kernel: &'s dyn Notify,
    pub(super) soon: &'s Soon,
    pub(super) slot: &'s dyn Slot,
}

impl Tell for FromSlot<'_> {
    fn now(&self, notice: &Notice) -> Result<(), MustNotWait> {
        let _away = Away::from(self.slot)?;
        // It fails if the kernel knows nothing to forget.
        let _ = self.kernel.notify(notice);
        Ok(())
    }

    fn soon(&self, notice: Notice) {
        self.soon.post(notice);
    }

    fn caller_waits(&self) -> bool {
        self.slot.caller_waits()
    }

    fn features(&self) -> InitFlags {
        self.kernel.features()
    }
}
