//! Other systems, where only files are opened.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// No block devices.
pub fn block_devices() -> BTreeSet<PathBuf> {
    BTreeSet::new()
}
