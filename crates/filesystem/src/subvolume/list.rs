//! All subvolumes of a file system.

use larder_btree::{Range, Readahead};
use larder_format::item::RootItem;
use larder_format::{FormatError, ItemType, Key, objectid};

use super::{SubvolumeInfo, SubvolumeName};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;

/// Iterates over the subvolumes in the order of their ids, the top level and those that are being
/// deleted among them. After an error it goes on behind what cannot be read.
#[derive(Debug)]
pub struct Subvolumes {
    filesystem: Filesystem,
    items: Range,
    /// The subvolume whose reference may follow.
    pending: Option<SubvolumeInfo>,
}

impl Filesystem {
    /// All subvolumes.
    pub fn subvolumes(&self) -> Subvolumes {
        let first = Key::new(objectid::FS_TREE, ItemType::ROOT_ITEM, 0);
        let last = Key::new(objectid::LAST_FREE, ItemType::ROOT_BACKREF, u64::MAX);
        let items = self.root_tree().range(first..=last, Readahead::Forward);
        Subvolumes { filesystem: self.clone(), items, pending: None }
    }
}

impl Subvolumes {
    fn advance(&mut self) -> Result<Option<SubvolumeInfo>> {
        while let Some((key, bytes)) = self.items.next_item()? {
            let bad = |problem: FormatError| Error::item(objectid::ROOT_TREE, key, problem);
            match key.item_type {
                ItemType::ROOT_ITEM if objectid::is_subvolume(key.objectid) => {
                    let item = RootItem::parse(bytes).map_err(bad)?;
                    // The root tree has what commits write.
                    let item = self.filesystem.live_root_item(key.objectid).unwrap_or(item);
                    let info = SubvolumeInfo::new(key.objectid, &item, key.offset, None);
                    if let Some(before) = self.pending.replace(info) {
                        return Ok(Some(before));
                    }
                }
                ItemType::ROOT_BACKREF => {
                    if let Some(info) = self.pending.take_if(|info| info.id == key.objectid) {
                        let name = Some(SubvolumeName::parse(key, bytes).map_err(bad)?);
                        return Ok(Some(SubvolumeInfo { name, ..info }));
                    }
                }
                _ => {}
            }
        }
        Ok(self.pending.take())
    }
}

impl Iterator for Subvolumes {
    type Item = Result<SubvolumeInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
