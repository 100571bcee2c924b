//! Further names for inodes.

use larder_format::{ItemType, Key};
use larder_transaction::Items;

use crate::core::changed::apply;
use crate::directory::handle::Directory;
use crate::directory::names::{NewEntry, check_name};
use crate::error::{Error, Result};
use crate::inode::handle::Inode;
use crate::inode::metadata::FileType;
use crate::inode::new::entry_type;
use crate::inode::orphans::orphan_key;
use crate::operation::inode_change::{InodeChange, ItemReservation};

/// Items of a name: entry, index, reference, orphan, and both inodes.
const ITEMS: u64 = 6;
/// The most names that an inode has.
const MOST_LINKS: u32 = 65_535;

impl Directory<'_> {
    /// Gives `inode`, which is no directory, the further name `name` in this directory, or its
    /// first if it was [created without](Self::create_unnamed). An inode that lost its last name
    /// gets no other.
    ///
    /// # Errors
    /// `EEXIST`, `EXDEV`, `EPERM` for a directory, `EMLINK` beyond 65,535 names, `EOVERFLOW`,
    /// `EROFS`, `ENOSPC`, `EDQUOT`.
    pub fn link(self, name: &[u8], inode: &Inode) -> Result<()> {
        let (directory, linked) = (self.live_inode()?, inode.live_inode()?);
        check_name(name)?;
        if self.subvolume() != inode.subvolume() {
            return Err(Error::CrossSubvolume);
        }
        if inode.file_type() == FileType::Directory {
            return Err(Error::NotPermitted("a directory has one name"));
        }
        let mut change = InodeChange::start(
            self.core(),
            self.subvolume().live()?,
            ItemReservation::adding(ITEMS),
            [directory, linked],
        )?;
        let (handle, locked) = change.parts();
        self.check_not_removed()?;
        locked.of(directory).check_may_name()?;
        let state = locked.of(linked);
        state.check_may_unname()?;
        let mut names = self.names();
        names.check_free(self.number(), name)?;
        match state.item.nlink.get() {
            0 if !state.is_unnamed => return Err(Error::NotFound),
            MOST_LINKS.. => return Err(Error::TooManyLinks),
            _ => {}
        }
        names.check_ref_room(inode.number(), self.number(), name)?;
        let generation = handle.generation();
        apply(handle, || {
            let index = directory.next_index(locked.of(directory))?;
            names.insert_ref(inode.number(), self.number(), name, index)?;
            names.insert(&NewEntry {
                directory,
                name,
                index,
                location: Key::new(inode.number(), ItemType::INODE_ITEM, 0),
                file_type: entry_type(inode.file_type()),
                generation,
            })?;
            let state = locked.of(linked);
            state.item.nlink += 1;
            state.touch(generation, false);
            linked.put_item(state)?;
            if state.is_unnamed {
                names.items().remove(orphan_key(inode.number()))?;
                state.is_unnamed = false;
                linked.opens.link();
            }
            let state = locked.of(directory);
            state.names_grew(generation, name.len() as i64);
            directory.put_item(state)
        })?;
        change.end()
    }
}
