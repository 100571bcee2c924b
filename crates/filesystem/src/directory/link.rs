//! Giving inodes further names, and removing names.

use std::ffi::OsStr;
use std::sync::Arc;

use larder_format::{ItemType, Key};
use larder_platform::OsStrExt;
use larder_transaction::{Handle, Items, TreeItems};

use crate::change::changeable::Changeable;
use crate::changed::{Changed, apply};
use crate::core::writer::Writer;
use crate::directory::entry::Target;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::inode::Inode;
use crate::item::metadata::FileType;
use crate::item::new::entry_type;
use crate::live::inode::{InodeState, LiveInode};
use crate::live::names::{NewEntry, check_name};
use crate::live::orphans::{Orphan, orphan_key};
use crate::operation::inode_change::{InodeChange, ItemReservation};
use crate::subvolume::delete::Content;
use crate::writeback::orphan_deletion::delete_orphans;

/// Items that change with a name: entry, index, reference, orphan, and both inodes.
const ITEMS: u64 = 6;
/// A file with more extents is deleted in steps of its own, after its last name is gone.
const MOST_EXTENTS: u64 = 16;
/// The most names that an inode has.
const MOST_LINKS: u32 = 65_535;

fn expect_no_directory(inode: &Inode) -> Result<()> {
    match inode.file_type() {
        FileType::Directory => Err(Error::IsADirectory),
        _ => Ok(()),
    }
}

impl Directory {
    /// Gives `inode`, which is no directory, the further name `name` in this directory, or its
    /// first if it was [created without](Self::create_unnamed). An inode that lost its last name
    /// gets no other.
    ///
    /// # Errors
    /// `EEXIST`, `EXDEV`, `EPERM` for a directory, `EMLINK` beyond 65,535 names, `EOVERFLOW`,
    /// `EROFS`, `ENOSPC`, `EDQUOT`.
    pub fn link_child(&self, name: &OsStr, inode: &Inode) -> Result<()> {
        let name = name.as_bytes();
        let (target, linked) = (self.changeable()?, inode.live_inode()?);
        check_name(name)?;
        if self.subvolume() != inode.subvolume() {
            return Err(Error::CrossSubvolume);
        }
        if inode.file_type() == FileType::Directory {
            return Err(Error::NotPermitted("a directory has one name"));
        }
        let (mut change, [directory, linked]) =
            InodeChange::start_with(target, ItemReservation::adding(ITEMS), [target.live, linked])?;
        let InodeChange { writer, locked, handle } = &mut change;
        self.check_not_removed()?;
        locked.of(directory).check_may_name()?;
        let state = locked.of(linked);
        state.check_may_unname()?;
        let mut names = writer.names_of(&directory);
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
                directory: &directory,
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

    /// Removes `name`, which is not that of a directory, from this directory. An inode is
    /// deleted with its last name, or once its last handle is dropped.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EPERM`, `EROFS`.
    pub fn remove_child(&self, name: &OsStr) -> Result<()> {
        self.remove_child_if(name, |_| Ok(()))
    }

    /// As [`remove_child`](Self::remove_child), if `may` allows it for the inode that loses the
    /// name. It can be asked several times, the last time for the inode that is taken.
    ///
    /// # Errors
    /// Those of `may` too.
    pub fn remove_child_if<E: From<Error>>(
        &self,
        name: &OsStr,
        may: impl Fn(&Inode) -> Result<(), E>,
    ) -> Result<(), E> {
        self.take_name(name.as_bytes(), |found| {
            expect_no_directory(found)?;
            may(found)
        })
    }

    /// Removes the empty directory `name`, which may be a subvolume, from this directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EPERM` also for the default subvolume, `EROFS`.
    pub fn remove_child_directory(&self, name: &OsStr) -> Result<()> {
        self.remove_child_directory_if(name, |_| Ok(()))
    }

    /// As [`remove_child_directory`](Self::remove_child_directory), if `may` allows it for the
    /// directory that loses the name. It can be asked several times, the last time for the one that
    /// is taken.
    ///
    /// # Errors
    /// Those of `may` too.
    pub fn remove_child_directory_if<E: From<Error>>(
        &self,
        name: &OsStr,
        may: impl Fn(&Inode) -> Result<(), E>,
    ) -> Result<(), E> {
        self.take_name(name.as_bytes(), |found| {
            found.expect_directory()?;
            may(found)
        })
    }

    /// Removes the name of an inode that passes `check`.
    fn take_name<E: From<Error>>(
        &self,
        name: &[u8],
        check: impl Fn(&Inode) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.try_to_take_name(name, &check)? {}
        delete_orphans(self.writer()?);
        Ok(())
    }

    /// Removes the name of an inode that passes `check`, unless another thread is faster. Returns
    /// whether it did.
    fn try_to_take_name<E: From<Error>>(
        &self,
        name: &[u8],
        check: &impl Fn(&Inode) -> Result<(), E>,
    ) -> Result<bool, E> {
        let found = self.child_named(name)?;
        check(&found)?;
        if found.is_empty_subvolume() {
            return Ok(self.take_empty_subvolume(name)?);
        }
        if found.is_subvolume_root() {
            drop(found);
            let check = |root: &Inode| {
                if root.is_subvolume_root() { check(root).map(|()| true) } else { Ok(false) }
            };
            return self.remove_subvolume(name, Content::None, check);
        }
        Ok(self.try_to_take(name, &found)?)
    }

    /// Removes the name of `found`, unless it leads elsewhere. Returns whether it did.
    fn try_to_take(&self, name: &[u8], found: &Inode) -> Result<bool> {
        let target = self.changeable()?;
        let Changeable { writer, subvolume, .. } = target;
        let live = found.live_inode()?;
        let space = writer.manager.space();
        let most = space.references_at_once(ITEMS, MOST_EXTENTS, subvolume.deletion_priority());
        let (mut change, [directory, live]) = InodeChange::start_with(
            target,
            ItemReservation::removing(ITEMS, subvolume).dropping(most),
            [target.live, live],
        )?;
        let InodeChange { locked, handle, .. } = &mut change;
        if self.find(name)? != Some(Target::Inode(found.number())) {
            return Ok(false);
        }
        self.check_not_removed()?;
        locked.of(directory).check_may_unname()?;
        let state = locked.of(live);
        state.check_may_unname()?;
        if found.file_type() == FileType::Directory && state.size_bytes > 0 {
            return Err(Error::DirectoryNotEmpty);
        }
        let generation = handle.generation();
        apply(handle, || {
            let mut names = writer.names_of(&directory);
            let index = names.index_of(found.number(), self.number(), name)?;
            names.remove(&directory, name, index)?;
            if !live.delete_now(writer, handle, locked.of(live), most)? {
                names.remove_ref(found.number(), self.number(), name)?;
                live.lose_name(locked.of(live), generation)?;
            }
            let state = locked.of(directory);
            state.names_grew(generation, -(name.len() as i64));
            directory.put_item(state)
        })?;
        change.end()?;
        Ok(true)
    }

    /// Removes the entry of a subvolume that is not there: nothing refers back to it. Returns false
    /// if the name leads elsewhere.
    fn take_empty_subvolume(&self, name: &[u8]) -> Result<bool> {
        let target = self.changeable()?;
        let reservation = ItemReservation::removing(ITEMS, target.subvolume);
        let (mut change, directory) = InodeChange::start(target, reservation)?;
        let InodeChange { writer, locked, handle } = &mut change;
        let state = locked.of(directory);
        self.check_not_removed()?;
        state.check_may_unname()?;
        // The directory's state is locked here, as it must be for looking a name up.
        let Some(target @ Target::Subvolume(_)) = self.find(name)? else { return Ok(false) };
        if !self.open_target(target, name, None)?.is_empty_subvolume() {
            return Ok(false);
        }
        let index = self.index_of(name)?;
        apply(handle, || {
            writer.names_of(&directory).remove(&directory, name, index)?;
            state.names_grew(handle.generation(), -(name.len() as i64));
            directory.put_item(state)
        })?;
        change.end()?;
        Ok(true)
    }
}

impl LiveInode {
    /// Deletes a file that loses its only name at once, unless another handle is open or the file
    /// has more than `most` extents. A file deleted here never becomes an orphan. Returns whether it
    /// is gone.
    fn delete_now(
        self: &Arc<Self>,
        writer: &Writer,
        handle: &Handle<'_>,
        state: &InodeState,
        most: u64,
    ) -> Changed<bool> {
        let is_last_name = self.file_type() != FileType::Directory && state.item.nlink.get() == 1;
        if !is_last_name || !state.pages.is_clean() {
            return Ok(false);
        }
        writer.logged_inodes.names_changed(self.id());
        // From here on no other thread opens it.
        let open_count = self.opens.unlink();
        self.forget_delayed();
        if open_count > 1 {
            return Ok(false);
        }
        let orphan = Orphan { tree: self.tree().clone(), number: self.number() };
        if !orphan.delete_whole(handle, most)? {
            return Ok(false);
        }
        self.mark_deleted();
        Ok(true)
    }

    /// Notes that a name is gone. Without any name the inode becomes an orphan.
    pub(crate) fn lose_name(
        self: &Arc<Self>,
        state: &mut InodeState,
        generation: u64,
    ) -> Changed<()> {
        let left = match self.file_type() {
            FileType::Directory => 0,
            _ => state.item.nlink.get().saturating_sub(1),
        };
        state.item.nlink = left.into();
        state.touch(generation, false);
        if left > 0 {
            return self.put_item(state);
        }
        self.opens.unlink();
        TreeItems::new(self.tree().clone()).insert(orphan_key(self.number()), &[])?;
        self.write_items(state)
    }
}
