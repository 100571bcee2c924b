//! Finding a name.

use larder_format::item::{DirEntries, NAME_MAX};
use larder_format::{ItemType, name_hash};

use super::{DirEntry, Target};
use crate::error::{Error, Result};
use crate::inode::Inode;

impl Inode {
    /// The entry `name` of the directory; its index is not known then and 0.
    fn find(&self, name: &[u8]) -> Result<Option<DirEntry>> {
        let key = self.key(ItemType::DIR_ITEM, name_hash::dir_name(name));
        let Some(item) = self.subvolume().tree().get(key)? else { return Ok(None) };
        for entry in DirEntries::new(&item) {
            let entry = entry.map_err(|problem| self.subvolume().bad_item(key, problem))?;
            if entry.name == name {
                return DirEntry::from_item(0, &entry)
                    .map(Some)
                    .map_err(|problem| self.subvolume().bad_item(key, problem));
            }
        }
        Ok(None)
    }

    /// What the directory has under `name`, which is neither `.` nor `..` nor a path.
    pub fn lookup(&self, name: &[u8]) -> Result<Self> {
        self.expect_directory()?;
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let entry = self.find(name)?.ok_or(Error::NotFound)?;
        self.open_entry(&entry)
    }

    /// What an entry of this directory leads to.
    pub fn open_entry(&self, entry: &DirEntry) -> Result<Self> {
        match entry.target {
            Target::Inode(number) => self.subvolume().inode(number),
            Target::Subvolume(id) => {
                let root = self.subvolume().nested(id, self.number(), &entry.name)?;
                Ok(root.unwrap_or_else(|| Self::empty_subvolume(self)))
            }
        }
    }
}
