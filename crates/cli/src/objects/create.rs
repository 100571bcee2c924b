//! New disks of objects.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use larder_device::Device;
use larder_objects::{Address, ObjectDevice, ObjectsError, Options, Policy, Settings, Store};

use super::address::store;

/// How long objects that no kept state needs stay for readers, by default, in seconds.
const DELETE_AFTER: u64 = 60 * 60;

/// Makes a disk of zeros where the URL `url` leads to, as [`create_at`] does.
pub fn create(url: &Path, len_bytes: u64, is_encrypted: bool) -> anyhow::Result<()> {
    let text = url.to_str().with_context(|| format!("{}: not UTF-8", url.display()))?;
    create_at(&text.parse()?, len_bytes, is_encrypted)
}

/// Encrypts what is written at `address` from now on. Nothing may be there that is not encrypted.
pub fn encrypt(address: &Address) -> anyhow::Result<()> {
    let settings = Settings::from_environment()?;
    Ok(address.keys(&settings)?.create(settings.key.as_ref())?)
}

/// Makes a disk of zeros at `address`. If an interrupted call has left one of that length there,
/// that one is taken.
pub fn create_at(address: &Address, len_bytes: u64, is_encrypted: bool) -> anyhow::Result<()> {
    if is_encrypted {
        encrypt(address)?;
    }
    let store = store(address)?;
    match ObjectDevice::create(&*store, len_bytes, Policy::default(), DELETE_AFTER) {
        Err(ObjectsError::Exists { .. }) if is_untouched(&store, len_bytes)? => Ok(()),
        result => Ok(result?),
    }
}

fn is_untouched(store: &Arc<dyn Store>, len_bytes: u64) -> anyhow::Result<bool> {
    let device = ObjectDevice::open_read_only(Arc::clone(store), None, &Options::default())?;
    Ok(device.len_bytes() == len_bytes && device.content_after(0)?.is_none())
}
