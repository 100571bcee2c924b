//! Taking a device for a file system that exists.

use std::path::Path;
use std::sync::Arc;

use larder_device::Device;
use larder_image::Place;

use crate::MkfsError;
use crate::target::Undo;
use crate::wipe::wipe;

/// A device that was taken. A file that was made for it goes again if this is dropped before
/// [`keep`](Self::keep).
pub struct Claimed {
    device: Arc<dyn Device>,
    undo: Undo,
}

impl Claimed {
    /// Opens the device or file at `path` to become a device of a file system, and wipes what other
    /// programs would know it by. Makes a file of `new_len_bytes` if there is none.
    ///
    /// # Errors
    /// [`MkfsError::Occupied`] if it has content that this crate or the system knows, unless `force`.
    pub fn open(
        path: &Path,
        new_len_bytes: Option<u64>,
        force: bool,
        discard: bool,
    ) -> Result<Self, MkfsError> {
        let mut undo = Undo::default();
        let image = undo.open(path, Place::WHOLE, new_len_bytes, force)?;
        undo.lengthen(&image, new_len_bytes.unwrap_or_default())?;
        wipe(image.device.as_ref(), discard)?;
        Ok(Self { device: image.device, undo })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// It belongs to a file system now.
    pub fn keep(self) {
        self.undo.forget();
    }
}
