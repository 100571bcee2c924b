//! The names of an inode.

use larder_btree::Readahead;
use larder_format::item::{InodeExtrefs, InodeRefs};
use larder_format::{FormatError, ItemType, Key};

use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::scan::paths::DirectoryPaths;
use crate::subvolume::handle::Subvolume;

/// A name of an inode (`INODE_REF`, `INODE_EXTREF`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The directory that has the name.
    pub parent: u64,
    /// Index of the name in the directory.
    pub index: u64,
    /// The name.
    pub name: Vec<u8>,
}

impl Inode {
    /// All its names: those in one directory together, except when there are very many.
    pub fn links(&self) -> Result<Vec<Link>> {
        let range = self.key(ItemType::INODE_REF, 0)..=self.key(ItemType::INODE_EXTREF, u64::MAX);
        let mut items = self.subvolume.view().range(range, Readahead::Forward);
        let mut links = Vec::new();
        while let Some((key, bytes)) = items.next_item()? {
            links_of_item(key, bytes, |parent, index, name| {
                links.push(Link { parent, index, name: name.to_vec() });
            })
            .map_err(|problem| self.subvolume.bad_item(key, problem))?;
        }
        Ok(links)
    }

    /// Every path of the inode from the root of its subvolume, without a slash at either end.
    pub fn paths(&self) -> Result<Vec<Vec<u8>>> {
        if self.is_subvolume_root() {
            return Ok(vec![Vec::new()]);
        }
        let mut paths = DirectoryPaths::new(self.subvolume.clone());
        self.links()?.iter().map(|link| paths.link(link)).collect()
    }
}

impl Subvolume {
    /// The one name of a directory that is not the root, and the key of the reference.
    pub(crate) fn directory_link(&self, inode: u64) -> Result<(Key, Link)> {
        let key = |parent| Key::new(inode, ItemType::INODE_REF, parent);
        let mut items = self.view().range(key(0)..=key(u64::MAX), Readahead::None);
        let missing = Error::MissingItem { tree: self.id(), key: key(0) };
        let (key, bytes) = items.next_item()?.ok_or(missing)?;
        let link = InodeRefs::new(bytes)
            .next()
            .unwrap_or_else(|| Err(FormatError::invalid("inode reference", "it is empty")))
            .map_err(|problem| self.bad_item(key, problem))?;
        let (index, name) = (link.index, link.name.to_vec());
        Ok((key, Link { parent: key.offset, index, name }))
    }
}

/// Calls `visit` with the parent, index and name of each reference of an `INODE_REF` or
/// `INODE_EXTREF` item.
pub(crate) fn links_of_item(
    key: Key,
    bytes: &[u8],
    mut visit: impl FnMut(u64, u64, &[u8]),
) -> Result<(), FormatError> {
    if key.item_type == ItemType::INODE_REF {
        for link in InodeRefs::new(bytes) {
            let link = link?;
            visit(key.offset, link.index, link.name);
        }
        return Ok(());
    }
    for link in InodeExtrefs::new(bytes) {
        let link = link?;
        visit(link.parent, link.index, link.name);
    }
    Ok(())
}
