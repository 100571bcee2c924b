//! Deleting subvolumes. The name goes first, by a commit; the tree goes when nothing of it is open.
//!
//! # Invariants
//! - A deleted subvolume has no name. Its root item counts no reference, and an ORPHAN_ITEM of the
//!   root tree lists it until its tree is gone, so that opening the file system for writing after a
//!   crash completes the deletion.
//! - All handles of a subvolume, and of inodes in it, share one [`SubvolumeState`]. After the
//!   deletion, new handles are only copies of existing ones, so that the end of the state is the
//!   end of all use. Until then everything works as before, except that its root directory gains
//!   and loses no names and no subvolume is nested in it.
//! - What must hold of a subvolume that is deleted is checked with the door closed: until then a
//!   rename may move another subvolume into it.
//! - When the first block of a tree is dropped, nothing of the tree is dirty, queued or newer than
//!   the last commit, and that does not change.
//!
//! [`SubvolumeState`]: crate::handle::subvolume::SubvolumeState

use std::ffi::OsStr;
use std::sync::atomic::Ordering::Relaxed;

use larder_format::item::ROOT_SUBVOL_DEAD;
use larder_format::{ItemType, Key};
use larder_platform::OsStrExt;
use larder_transaction::space::{Priority, SpaceKind};
use larder_transaction::{Exclusive, Items, TreeItems};

use crate::change::changeable::Changeable;
use crate::change::locks::LockedInodes;
use crate::changed::Changed;
use crate::commit::drop_tree::drop_unused;
use crate::commit::references::leave_subvolume;
use crate::commit::uuids::forget_uuid;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::filesystem::Filesystem;
use crate::handle::inode::Inode;
use crate::live::orphans::orphan_key;

/// Items that change with a name of a subvolume: entry and index, the directory, two references, two
/// uuids, orphan, root.
const ITEMS: u64 = 9;

/// What a subvolume may contain when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Anything except other subvolumes.
    Any,
    /// Nothing.
    None,
}

impl Directory {
    /// Deletes the subvolume named `name` in this directory with all its content. The name is
    /// durably gone when this returns. The rest is gone too, unless something of the subvolume is
    /// open: that works as before, and the rest goes with the last of it. If this is interrupted,
    /// opening the file system for writing completes it.
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` for other inodes, `ENOTEMPTY` if subvolumes are nested in it, `EPERM` for
    /// the default subvolume, for one that is [being sent](crate::SendGuard), for one whose root
    /// is immutable or append-only, `EROFS`.
    pub fn delete_child_subvolume(&self, name: &OsStr) -> Result<()> {
        self.delete_child_subvolume_if(name, |_| Ok(()))
    }

    /// As [`delete_child_subvolume`](Self::delete_child_subvolume), if `may` allows it for the root
    /// of the subvolume that is deleted.
    ///
    /// # Errors
    /// Those of `may` too.
    pub fn delete_child_subvolume_if<E: From<Error>>(
        &self,
        name: &OsStr,
        may: impl Fn(&Inode) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_deleted = self.remove_subvolume(name.as_bytes(), Content::Any, |root| {
            let is_one = root.is_subvolume_root();
            let found = if is_one { Ok(true) } else { Err(E::from(Error::NotASubvolume)) };
            may(root).and(found)
        })?;
        debug_assert!(is_deleted);
        Ok(())
    }

    /// Deletes the subvolume named `name` in this directory if it contains no more than that, and
    /// `check` passes its root. Returns whether it passed.
    pub(crate) fn remove_subvolume<E: From<Error>>(
        &self,
        name: &[u8],
        content: Content,
        check: impl Fn(&Inode) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let writer = self.writer()?;
        let subvolumes = writer.subvolumes.lock();
        let root = self.child_named(name)?;
        if !check(&root)? {
            return Ok(false);
        }
        self.remove_root(name, root, content)?;
        drop(subvolumes);
        Ok(true)
    }

    /// Deletes the subvolume with this `root`, unless `name` leads elsewhere. The caller has locked
    /// the table of subvolumes.
    fn remove_root(&self, name: &[u8], root: Inode, content: Content) -> Result<()> {
        let (writer, filesystem) = (self.writer()?, self.subvolume().filesystem());
        let reservation = writer.manager.space().insertion_bytes(ITEMS);
        let reservation =
            writer.manager.reserve(SpaceKind::Metadata, reservation, Priority::Freeing)?;
        let id = root.subvolume().id();
        let cleaning = writer.manager.begin_cleaning();
        let exclusive = writer.manager.quiesce();
        check_deletable(filesystem, id)?;
        self.subvolume().live()?.check_writable()?;
        writer.send_guards.check_free(id)?;
        if content == Content::None && root.size_bytes() > 0 {
            return Err(Error::DirectoryNotEmpty);
        }
        self.unname_subvolume(&exclusive, &root, name)?;
        drop((exclusive, reservation));
        filesystem.sync()?;
        // Unless something else of it is open, it is unused from here on.
        drop(root);
        Ok(drop_unused(writer, &cleaning)?)
    }

    /// Removes the name of a subvolume and lists it as an orphan.
    fn unname_subvolume(&self, exclusive: &Exclusive<'_>, root: &Inode, name: &[u8]) -> Result<()> {
        let subvolume = root.subvolume();
        let (Changeable { writer, live, .. }, id) = (self.changeable()?, subvolume.id());
        let (mut locked, [directory, root]) = LockedInodes::new([live, root.live_inode()?]);
        self.check_not_removed()?;
        locked.of(root).check_may_unname()?;
        let state = locked.of(directory);
        state.check_may_unname()?;
        let its_name = subvolume.name()?.ok_or(Error::NotFound)?;
        let is_its = (its_name.parent, its_name.directory, &*its_name.name)
            == (self.subvolume().id(), self.number(), name);
        if !is_its {
            return Err(Error::NotFound);
        }
        let item = subvolume.root_item();
        let mut change = || -> Changed<()> {
            writer.names_of(&directory).remove(&directory, name, its_name.index)?;
            state.names_grew(exclusive.manager().generation(), -(name.len() as i64));
            directory.put_item(state)?;
            leave_subvolume(writer, &directory, id)?;
            forget_uuid(writer, item.uuid(), ItemType::UUID_KEY_SUBVOL, id)?;
            forget_uuid(writer, item.received_uuid(), ItemType::UUID_KEY_RECEIVED_SUBVOL, id)?;
            let mut root_tree = TreeItems::new(writer.manager.trees().root().clone());
            root_tree.insert(orphan_key(id), &[])?;
            exclusive.change_root_item(id, |item| {
                item.refs = 0.into();
                item.flags = (item.flags.get() | ROOT_SUBVOL_DEAD).into();
                item.drop_progress = Key::MIN.into();
                item.drop_level = 0;
            });
            Ok(())
        };
        change().inspect_err(|error| writer.manager.abort(error.clone()))?;
        subvolume.live()?.is_deleted.store(true, Relaxed);
        Ok(())
    }
}

/// Refuses to delete subvolumes that are still needed.
fn check_deletable(filesystem: &Filesystem, id: u64) -> Result<()> {
    if id == filesystem.default_subvolume_id()? {
        return Err(Error::NotPermitted("it is the default subvolume"));
    }
    let writer = filesystem.writer()?;
    let nested = Key::new(id, ItemType::ROOT_REF, 0)..=Key::new(id, ItemType::ROOT_REF, u64::MAX);
    let root_tree = TreeItems::new(writer.manager.trees().root().clone());
    if root_tree.range(nested)?.is_empty() { Ok(()) } else { Err(Error::DirectoryNotEmpty) }
}
