//! A replace that the next commit ends.

use std::sync::Arc;

use larder_volume::VolumeDevice;

/// What the end of a replace does with the devices.
#[derive(Debug, Default)]
pub(super) struct Finishing {
    /// The next commit exchanges this device.
    pub(super) devid: Option<u64>,
    /// The one that left.
    pub(super) left: Option<Arc<VolumeDevice>>,
}
