//! Converting block groups to other profiles.

use larder_format::Profile;
use larder_volume::Chunk;

use super::{DeviceWork, Tell};
use crate::copy::Moved;
use crate::error::Result;
use crate::manager::TransactionManager;
use crate::space::SpaceKind;

/// The profiles that block groups are to have; `None` leaves them as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// Of those for data, and of mixed ones.
    pub data: Option<Profile>,
    /// Of those for metadata.
    pub metadata: Option<Profile>,
    /// Of those for the chunk tree.
    pub system: Option<Profile>,
}

impl Conversion {
    /// The profile for a kind.
    pub fn target(&self, kind: SpaceKind) -> Option<Profile> {
        match kind {
            SpaceKind::Data => self.data,
            SpaceKind::Metadata => self.metadata,
            SpaceKind::System => self.system,
        }
    }
}

impl TransactionManager {
    /// Moves block groups to the profiles that are wanted, each with a commit. New ones have them
    /// from now on. Calls `tell` in this thread with the progress.
    ///
    /// # Errors
    /// [`Error::NoPlace`](crate::Error::NoPlace) if the devices have no room for a block group.
    ///
    /// # Panics
    /// If this thread has a [`Handle`](crate::Handle).
    pub fn convert(&self, wanted: Conversion, tell: &Tell<'_>) -> Result<Moved> {
        let mut work = DeviceWork::begin(self, tell)?;
        let _targets = Targets::new(self, wanted);
        let target = |chunk: &Chunk| wanted.target(SpaceKind::of_types(chunk.flags())?);
        work.move_chunks(
            |chunk| target(chunk).is_some_and(|profile| profile != chunk.profile()),
            |chunk| target(chunk).unwrap_or(chunk.profile()),
            |_, _| false,
        )?;
        Ok(work.moved)
    }
}

/// The profiles that new chunks get, until this is dropped.
pub(in crate::manager) struct Targets<'m>(&'m TransactionManager);

impl<'m> Targets<'m> {
    pub(in crate::manager) fn new(manager: &'m TransactionManager, wanted: Conversion) -> Self {
        for kind in SpaceKind::ALL {
            manager.space().set_target_profile(kind, wanted.target(kind));
        }
        Self(manager)
    }
}

impl Drop for Targets<'_> {
    fn drop(&mut self) {
        for kind in SpaceKind::ALL {
            self.0.space().set_target_profile(kind, None);
        }
    }
}
