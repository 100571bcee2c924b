//! Paths by number: of directories in a subvolume, and of subvolumes in the file system.

use std::collections::HashSet;

use larder_format::item::InodeRefs;
use larder_format::{FormatError, objectid};

use super::Subvolume;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;

impl Subvolume {
    /// The path of a directory from the root of the subvolume, without a slash at either end: that of
    /// the root is empty.
    pub fn directory_path(&self, inode: u64) -> Result<Vec<u8>> {
        let mut path = ReversedPath::default();
        let mut seen = HashSet::new();
        let mut at = inode;
        while at != objectid::FIRST_FREE {
            let (key, item) = self.directory_ref(at)?;
            if !seen.insert(at) {
                return Err(self.bad_item(key, FormatError::invalid("path", "it has a loop")));
            }
            let name = InodeRefs::new(&item)
                .next()
                .unwrap_or_else(|| Err(FormatError::invalid("inode reference", "it is empty")))
                .map_err(|problem| self.bad_item(key, problem))?
                .name;
            path.prepend(name);
            at = key.offset;
        }
        Ok(path.finish())
    }
}

impl Filesystem {
    /// The path of the subvolume `id` from the top level, without a slash at either end: that of the
    /// top level is empty.
    pub fn subvolume_path(&self, id: u64) -> Result<Vec<u8>> {
        let mut path = ReversedPath::default();
        let mut seen = HashSet::new();
        let mut at = id;
        while at != objectid::FS_TREE {
            let name = self.subvolume_name(at)?.ok_or(Error::NoSuchSubvolume(at))?;
            if !seen.insert(at) {
                return Err(Error::NoSuchSubvolume(id));
            }
            let parent = self.subvolume(name.parent)?;
            path.prepend(&name.name);
            path.prepend(&parent.directory_path(name.directory)?);
            at = name.parent;
        }
        Ok(path.finish())
    }
}

/// A path that is put together from its end.
#[derive(Default)]
struct ReversedPath {
    parts: Vec<Vec<u8>>,
}

impl ReversedPath {
    /// Puts `part`, unless it is empty, before what is there.
    fn prepend(&mut self, part: &[u8]) {
        if !part.is_empty() {
            self.parts.push(part.to_vec());
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.parts.reverse();
        self.parts.join(&b'/')
    }
}
