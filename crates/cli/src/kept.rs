//! States of mounted file systems that stay readable while programs go on.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use larder::device::KeptState;
use larder::{ErrorKind, MountedFilesystem};

/// A state of the mounted file system that `path` lies in, of a commit that the server makes now.
pub fn keep_state(path: &Path) -> anyhow::Result<KeptState> {
    let shown = path.display();
    let mounted = MountedFilesystem::open(path).map_err(|error| match error.kind() {
        ErrorKind::Unsupported => anyhow!(
            "{shown}: lies neither in a mount of larder nor in one of btrfs; name an image file or \
             a block device"
        ),
        _ => error.into(),
    })?;
    match mounted.keep_state().with_context(|| format!("{shown}:"))? {
        Some(state) => Ok(state),
        None => bail!(
            "{shown}: lies in a file system that the kernel has mounted, and changes while it is \
             read; unmount it, and name its image or device"
        ),
    }
}

/// Whether to go on reading: nothing is gained once the state has ended.
pub fn unless_ended(state: Option<&KeptState>) -> ControlFlow<()> {
    match state.and_then(KeptState::ended) {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    }
}

/// Fails if the state of what lies at `path` ended before its reader.
pub fn check_not_ended(state: &KeptState, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    state.ended().map_or(Ok(()), |reason| Err(anyhow!("{shown}: {reason}; try again")))
}
