//! The space of chunks that move to other places on devices.
//!
//! # Invariants
//! - From [`Space::begin_move`] on no other chunk gets the new places, and until
//!   [`Space::end_move`] none gets the old ones. Only the places that the trees name count as used.
//! - A group whose chunk moves stays, even if nothing in it is in use.

use std::sync::Arc;

use larder_format::Profile;
use larder_volume::layout::{Devices, moved};
use larder_volume::{Chunk, ChunkStripe};

use super::{Group, Space};

impl Space {
    /// Plans the layout that the chunk of a group gets with this profile and without the stripes that
    /// leave, and keeps its places. `None` if the devices have no room for it.
    pub(crate) fn begin_move(
        &self,
        group: &Group,
        profile: Profile,
        leaves: impl Fn(&ChunkStripe) -> bool,
    ) -> Option<Arc<Chunk>> {
        let mut devices = self.devices.lock();
        let chunk = group.chunk();
        let to = moved(&chunk, profile, &devices, leaves)?;
        devices.keep_for_move(&chunk, &to);
        group.set_moves(true);
        Some(Arc::new(to))
    }

    /// The chunk of a group has the layout `to` from now on.
    pub(crate) fn exchange_layouts(&self, group: &Group, to: Arc<Chunk>) {
        self.devices.lock().moved(&group.chunk(), &to);
        group.set_chunk(to);
        self.update_profiles(&self.devices.lock());
        self.update_reserve();
    }

    /// Frees the places of the layout that the chunk of a group left, or that it did not get.
    pub(crate) fn end_move(&self, group: &Group, left: &Chunk) {
        self.devices.lock().end_move(left, &group.chunk());
        group.set_moves(false);
        self.update_reserve();
    }

    /// Looks again at which devices take chunks.
    pub(crate) fn heed_devices(&self) {
        self.change_devices(|devices| {
            for device in self.volume.devices().iter() {
                let takes_chunks = device.takes_chunks();
                devices.change(device.devid(), |space| space.is_usable = takes_chunks);
            }
        });
    }

    /// Changes what is known of the devices.
    pub(crate) fn change_devices(&self, change: impl FnOnce(&mut Devices)) {
        let mut devices = self.devices.lock();
        change(&mut devices);
        self.update_profiles(&devices);
        drop(devices);
        self.update_reserve();
    }
}
