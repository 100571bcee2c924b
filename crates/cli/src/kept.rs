//! States of mounted file systems that stay readable while programs go on.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use larder::device::Device;
use larder::{ErrorKind, MountedFilesystem};

/// The devices of the mounted file system that `path` lies in, in the state of a commit that the
/// server makes now.
pub fn kept_devices(path: &Path) -> anyhow::Result<Vec<Arc<dyn Device>>> {
    let shown = path.display();
    let mounted = MountedFilesystem::open(path).map_err(|error| match error.kind() {
        ErrorKind::Unsupported => anyhow!(
            "{shown}: lies neither in a mount of larder nor in one of btrfs; name an image file or \
             a block device"
        ),
        _ => error.into(),
    })?;
    match mounted.keep_state().with_context(|| format!("{shown}:"))? {
        Some(devices) => Ok(devices),
        None => bail!(
            "{shown}: lies in a file system that the kernel has mounted, and changes while it is \
             read; unmount it, and name its image or device"
        ),
    }
}
