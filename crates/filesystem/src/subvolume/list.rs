//! All subvolumes of a file system.

use larder_btree::{Range, Readahead};
use larder_format::item::RootItem;
use larder_format::{FormatError, ItemType, Key, objectid};

use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::subvolume::info::{SubvolumeInfo, SubvolumeName};

/// Iterates over the subvolumes in the order of their ids, the top level and those that are being
/// deleted among them. After an error it goes on behind what cannot be read.
#[derive(Debug)]
pub struct Subvolumes {
    filesystem: Filesystem,
    items: Range,
    together: SubvolumeItems,
}

/// Puts together what items of the root tree, given in order, say about subvolumes.
#[derive(Debug, Default)]
pub struct SubvolumeItems {
    /// The subvolume whose reference may follow.
    pending: Option<SubvolumeInfo>,
}

impl Filesystem {
    /// All subvolumes.
    pub fn subvolumes(&self) -> Subvolumes {
        let (first, last) = SubvolumeItems::RANGE;
        let items = self.root_tree().range(first..=last, Readahead::Forward);
        Subvolumes { filesystem: self.clone(), items, together: SubvolumeItems::default() }
    }
}

impl SubvolumeItems {
    /// The first and the last key that an item about a subvolume can have.
    pub const RANGE: (Key, Key) = (
        Key::new(objectid::FS_TREE, ItemType::ROOT_ITEM, 0),
        Key::new(objectid::LAST_FREE, ItemType::ROOT_BACKREF, u64::MAX),
    );

    /// Takes the next item; `live` gives a newer root item of a subvolume, if there is one. Returns a
    /// subvolume that is complete with it.
    pub fn add(
        &mut self,
        key: Key,
        bytes: &[u8],
        live: impl FnOnce(u64) -> Option<RootItem>,
    ) -> Result<Option<SubvolumeInfo>> {
        let bad = |problem: FormatError| Error::item(objectid::ROOT_TREE, key, problem);
        match key.item_type {
            ItemType::ROOT_ITEM if objectid::is_subvolume(key.objectid) => {
                let item = RootItem::parse(bytes).map_err(bad)?;
                let item = live(key.objectid).unwrap_or(item);
                let info = SubvolumeInfo::new(key.objectid, &item, key.offset, None);
                Ok(self.pending.replace(info))
            }
            ItemType::ROOT_BACKREF => {
                let Some(info) = self.pending.take_if(|info| info.id == key.objectid) else {
                    return Ok(None);
                };
                let name = Some(SubvolumeName::parse(key, bytes).map_err(bad)?);
                Ok(Some(SubvolumeInfo { name, ..info }))
            }
            _ => Ok(None),
        }
    }

    /// There are no more items. Returns the last subvolume, if it is not complete without that.
    pub fn end(&mut self) -> Option<SubvolumeInfo> {
        self.pending.take()
    }
}

impl Subvolumes {
    fn advance(&mut self) -> Result<Option<SubvolumeInfo>> {
        while let Some((key, bytes)) = self.items.next_item()? {
            // The root tree has what commits write.
            let live = |id| self.filesystem.core().live_root_item(id);
            if let Some(info) = self.together.add(key, bytes, live)? {
                return Ok(Some(info));
            }
        }
        Ok(self.together.end())
    }
}

impl Iterator for Subvolumes {
    type Item = Result<SubvolumeInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
