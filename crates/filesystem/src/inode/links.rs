//! The names of an inode.

use larder_btree::{ItemRef, Readahead};
use larder_format::item::{InodeExtrefs, InodeRefs};
use larder_format::{FormatError, ItemType, Key};

use super::Inode;
use crate::error::{Error, Result};
use crate::subvolume::Subvolume;

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
        let mut items = self.subvolume.tree().range(range, Readahead::Forward);
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
        let path = |link: Link| {
            let mut path = self.subvolume.directory_path(link.parent)?;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&link.name);
            Ok(path)
        };
        self.links()?.into_iter().map(path).collect()
    }
}

impl Subvolume {
    /// The one reference to a directory: its key's offset is the parent.
    pub(crate) fn directory_ref(&self, inode: u64) -> Result<(Key, ItemRef)> {
        let key = |parent| Key::new(inode, ItemType::INODE_REF, parent);
        let mut items = self.tree().range(key(0)..=key(u64::MAX), Readahead::None);
        let item = items.next().transpose()?;
        let item = item.ok_or(Error::MissingItem { tree: self.id(), key: key(0) })?;
        Ok((item.key(), item))
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
