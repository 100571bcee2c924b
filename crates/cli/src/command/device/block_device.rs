//! What must be a block device.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, ensure};

/// Fails if there is no block device at `path`.
pub fn expect_block_device(path: &Path) -> anyhow::Result<()> {
    let metadata = path.metadata().with_context(|| path.display().to_string())?;
    let is_block = metadata.file_type().is_block_device();
    ensure!(is_block, "not a block device: {}", path.display());
    Ok(())
}
