//! Deleting subvolumes. The name goes first, by a commit; the tree goes when nothing of it is open.
//!
//! # Invariants
//! - A deleted subvolume has no name. Its root item counts no reference, and an ORPHAN_ITEM of the
//!   root tree lists it until its tree is gone, so that opening the file system for writing after a
//!   crash completes the deletion.
//! - All handles of a subvolume, and of inodes in it, share one [`SubvolumeState`]. That of a
//!   deleted subvolume gets no handles but copies of those that there are, so that its end is the
//!   end of all use. Until then everything goes on as before, but names in its root directory
//!   neither come nor go, and nothing is nested in it.
//! - When the first block of a tree is given up nothing of it is dirty, queued or newer than the
//!   last commit, and that stays so.
//!
//! [`SubvolumeState`]: crate::subvolume::handle::SubvolumeState

use std::sync::atomic::Ordering::Relaxed;

use larder_format::item::ROOT_SUBVOL_DEAD;
use larder_format::{ItemType, Key};
use larder_transaction::space::{Priority, SpaceKind};
use larder_transaction::{Cleaning, Exclusive, Items, TreeItems};
use parking_lot::Mutex;

use crate::core::writer::{Changed, Writer, apply};
use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::inode::handle::Inode;
use crate::inode::live::Locked;
use crate::inode::orphans::orphan_key;
use crate::subvolume::create::ITEMS;

/// Tree blocks that are given up in one step of a deletion.
const BLOCKS_PER_STEP: u64 = 256;

/// What a subvolume may have in it when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Anything but other subvolumes.
    Any,
    /// Nothing.
    None,
}

/// Deleted subvolumes of which nothing is open any more.
#[derive(Default)]
pub(crate) struct DeletedSubvolumes {
    unused: Mutex<Vec<u64>>,
}

impl DeletedSubvolumes {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.unused.lock().is_empty()
    }

    fn pop(&self) -> Option<u64> {
        self.unused.lock().pop()
    }

    fn push(&self, id: u64) {
        self.unused.lock().push(id);
    }
}

impl Inode {
    /// Deletes the subvolume named `name` in this directory with all that is in it. The name is
    /// gone durably when this returns. The rest is gone too, unless something of the subvolume is
    /// open: that works as before, and the rest goes with the last of it. If that is interrupted,
    /// opening the file system for writing completes it.
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` for what is no subvolume, `ENOTEMPTY` if subvolumes are nested in it,
    /// `EPERM` for the default subvolume and for one that is [being sent](crate::Subvolume::guard_for_send),
    /// `EROFS`.
    pub fn delete_subvolume(&self, name: &[u8]) -> Result<()> {
        self.remove_subvolume(name, Content::Any)
    }

    /// Deletes the subvolume named `name` in this directory if it has no more in it than that.
    pub(crate) fn remove_subvolume(&self, name: &[u8], content: Content) -> Result<()> {
        let (writer, filesystem) = (self.writer()?, self.subvolume().filesystem());
        self.expect_directory()?;
        let subvolumes = writer.subvolumes.lock();
        let reservation = writer.manager.space().insertion_bytes(ITEMS);
        let reservation =
            writer.manager.reserve(SpaceKind::Metadata, reservation, Priority::Deleting)?;
        let root = self.lookup(name)?;
        if !root.is_subvolume_root() {
            return Err(Error::NotASubvolume);
        }
        let id = root.subvolume().id();
        filesystem.check_deletable(id)?;
        let cleaning = writer.manager.begin_cleaning();
        let exclusive = writer.manager.quiesce();
        self.subvolume().live()?.check_writable()?;
        writer.send_guards.check_free(id)?;
        if content == Content::None && root.size_bytes() > 0 {
            return Err(Error::DirectoryNotEmpty);
        }
        self.unname_subvolume(&exclusive, &root, name)?;
        drop((exclusive, reservation));
        filesystem.sync()?;
        drop(subvolumes);
        // Unless something else of it is open it is unused from here on.
        drop(root);
        Ok(writer.drop_unused(&cleaning)?)
    }

    /// Takes the name of a subvolume away and lists it as an orphan.
    fn unname_subvolume(&self, exclusive: &Exclusive<'_>, root: &Self, name: &[u8]) -> Result<()> {
        let subvolume = root.subvolume();
        let (writer, directory, id) = (self.writer()?, self.live_inode()?, subvolume.id());
        let mut locked = Locked::new([directory]);
        let state = locked.of(directory);
        self.check_not_removed()?;
        state.check_may_unname()?;
        let its_name = subvolume.name()?.ok_or(Error::NotFound)?;
        let is_its = (its_name.parent, its_name.directory, &*its_name.name)
            == (self.subvolume().id(), self.number(), name);
        if !is_its {
            return Err(Error::NotFound);
        }
        let item = subvolume.root_item();
        let mut change = || -> Changed<()> {
            self.names().remove(directory, name, its_name.index)?;
            state.names_grew(exclusive.manager().generation(), -(name.len() as i64));
            directory.put_item(state)?;
            self.leave_subvolume(id)?;
            writer.forget_uuid(item.uuid(), ItemType::UUID_KEY_SUBVOL, id)?;
            writer.forget_uuid(item.received_uuid(), ItemType::UUID_KEY_RECEIVED_SUBVOL, id)?;
            let mut root_tree = TreeItems::new(writer.manager.root_tree().clone());
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

impl Filesystem {
    /// Refuses to delete what others depend on.
    fn check_deletable(&self, id: u64) -> Result<()> {
        if id == self.default_subvolume_id()? {
            return Err(Error::NotPermitted("it is the default subvolume"));
        }
        let writer = self.writer()?;
        let nested =
            Key::new(id, ItemType::ROOT_REF, 0)..=Key::new(id, ItemType::ROOT_REF, u64::MAX);
        let root_tree = TreeItems::new(writer.manager.root_tree().clone());
        if root_tree.range(nested)?.is_empty() { Ok(()) } else { Err(Error::DirectoryNotEmpty) }
    }

    /// Completes deletions of subvolumes that were interrupted.
    pub(crate) fn resume_subvolume_deletions(&self) -> Result<()> {
        let writer = self.writer()?;
        let root_tree = TreeItems::new(writer.manager.root_tree().clone());
        for (key, _) in root_tree.range(orphan_key(0)..=orphan_key(u64::MAX))? {
            let id = key.offset;
            let item = writer.manager.tree(id)?.and_then(|_| writer.manager.root_item(id));
            // One that is in use is listed for another reason, which is not known here.
            if item.is_none_or(|(_, item)| item.refs.get() == 0) {
                writer.drop_subvolume(&writer.manager.begin_cleaning(), id)?;
            }
        }
        Ok(())
    }
}

impl Writer {
    /// Notes that nothing of a deleted subvolume is open any more. Its tree goes when deletions are
    /// next completed.
    pub(crate) fn subvolume_is_unused(&self, id: u64) {
        self.deleted.push(id);
        self.manager.note_work();
    }

    /// Gives up the trees of deleted subvolumes of which nothing is open. What fails is tried again
    /// with the next call, and stays listed until the file system is opened for writing again.
    pub(crate) fn drop_unused_subvolumes(&self) {
        if !self.deleted.is_empty() {
            // It fails where an error has made the file system read-only, or there is no room at
            // the moment.
            let _ = self.drop_unused(&self.manager.begin_cleaning());
        }
    }

    fn drop_unused(&self, cleaning: &Cleaning<'_>) -> Changed<()> {
        while let Some(id) = self.deleted.pop() {
            let dropped = self.commit_unused(id).and_then(|()| self.drop_subvolume(cleaning, id));
            dropped.inspect_err(|_| self.deleted.push(id))?;
        }
        Ok(())
    }

    /// Has the tree of a subvolume of which nothing is open be as the last commit has it, but
    /// for what is not worth writing any more.
    fn commit_unused(&self, id: u64) -> Changed<()> {
        self.dirty.discard(id);
        self.delayed.discard(id);
        let changed_in = self.manager.tree(id)?.map_or(0, |tree| tree.root().generation);
        if changed_in > self.manager.durable_generation() {
            self.manager.commit()?;
        }
        Ok(())
    }

    /// Gives up the tree of a subvolume that was deleted, in steps, and takes it from the list.
    fn drop_subvolume(&self, cleaning: &Cleaning<'_>, id: u64) -> Changed<()> {
        if self.manager.tree(id)?.is_some() {
            while !self.manager.drop_tree(id, BLOCKS_PER_STEP)? {
                cleaning.stepped();
            }
        }
        self.ids.forget(id);
        let handle = self.manager.start(1, Priority::Cleaning)?;
        let mut root_tree = TreeItems::new(self.manager.root_tree().clone());
        apply(&handle, || root_tree.remove(orphan_key(id)))?;
        handle.end()
    }
}
