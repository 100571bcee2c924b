//! The thread that verifies one device's part of a chunk.

use larder_volume::Volume;

use crate::device::{Part, Scrub};
use crate::state::State;

/// Verifies a part.
pub(crate) struct Verifier<'v> {
    pub(crate) scrub: &'v Scrub<'v>,
    pub(crate) state: &'v State,
    pub(crate) part: &'v Part,
}

/// The state was lost: from this address of the device on, nothing counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) at: u64,
}

impl Verifier<'_> {
    pub(crate) fn volume(&self) -> &Volume {
        self.scrub.target.volume()
    }

    pub(crate) fn sectorsize(&self) -> u64 {
        u64::from(self.volume().sectorsize())
    }

    /// Fails if the state was lost.
    pub(crate) fn check_kept(&self, at: u64) -> Result<(), Lost> {
        if self.state.is_kept() { Ok(()) } else { Err(Lost { at }) }
    }
}
