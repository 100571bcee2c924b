//! Paths of subvolumes in the file system.

use std::collections::HashSet;

use larder_format::objectid;

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::scan::paths::DirectoryPaths;

impl Filesystem {
    /// The path of the subvolume `id` from the top level, without a slash at either end: that of the
    /// top level is empty.
    pub fn subvolume_path(&self, id: u64) -> Result<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut seen = HashSet::new();
        let mut at = id;
        while at != objectid::FS_TREE {
            let name = self.core().subvolume_name(at)?.ok_or(Error::NoSuchSubvolume(at))?;
            if !seen.insert(at) {
                return Err(Error::NoSuchSubvolume(id));
            }
            let parent = self.subvolume(name.parent)?;
            parts.push(name.name);
            let directory = DirectoryPaths::new(parent).directory(name.directory)?.to_vec();
            if !directory.is_empty() {
                parts.push(directory);
            }
            at = name.parent;
        }
        parts.reverse();
        Ok(parts.join(&b'/'))
    }
}
