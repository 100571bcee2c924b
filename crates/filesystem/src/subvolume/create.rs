//! Creating subvolumes, taking snapshots and marking subvolumes. Each of these is a commit of its
//! own.
//!
//! # Invariants
//! - A snapshot is taken in a commit: no thread can change one before it is durable.
//! - A thread that creates, deletes or marks a subvolume holds `subvolumes`.
//! - A subvolume is marked as deleted or read-only while transactions are quiesced: a joined thread
//!   has checked its state, which does not change until the thread leaves.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_format::item::{
    INODE_ROOT_ITEM_INIT, InodeItem, InodeRef, ROOT_SUBVOL_RDONLY, RootItem, Timespec,
};
use larder_format::{ItemType, Key, Uuid, objectid};
use larder_platform::OsStrExt;
use larder_transaction::space::{Priority, SpaceKind};
use larder_transaction::{Handle, Items, TreeItems};
use parking_lot::Mutex;
use zerocopy::{FromZeros, IntoBytes};

use crate::changed::{Changed, apply};
use crate::commit::references::enter_subvolume;
use crate::commit::uuids::enter_uuid;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::subvolume::Subvolume;
use crate::inode::inheritance::inherited_by_subvolume;
use crate::item::attribute::attribute_item;
use crate::item::new::NewInode;
use crate::item::property::{COMPRESSION, set_compression};
use crate::live::names::check_name;
use crate::live::pending_snapshots::Pending;
use crate::operation::inode_change::{InodeChange, ItemReservation};
use crate::operation::limits::reserve_quota;
use crate::writeback::orphan_deletion::resume_orphans;

/// Items of a subvolume: root, inode, reference and property, entry and index, the directory, two
/// references, uuid, orphan; and as many to spare.
pub(crate) const ITEMS: u64 = 20;
/// Those of these items that are in the tree with its name: entry and index, the directory.
pub(crate) const NAME_ITEMS: u64 = 3;
/// Children that the root of a tree gets until the commit that takes a snapshot of it.
const MORE_CHILDREN: u64 = 16;
/// The name in the reference of a subvolume's root.
const PARENT: &[u8] = b"..";

/// Whether a snapshot can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// It never changes.
    ReadOnly,
    /// It can be changed.
    Writable,
}

impl Directory {
    /// Creates an empty subvolume named `name` in this directory. Its root gets the owner and
    /// permissions in `root`, as far as the umask and a default ACL of this directory allow. It is
    /// durable when this returns.
    ///
    /// # Errors
    /// As [`create_child`](Self::create_child).
    pub fn create_child_subvolume(&self, name: &OsStr, root: &NewInode) -> Result<Subvolume> {
        let name = name.as_bytes();
        let target = self.changeable()?;
        let writer = target.writer;
        check_name(name)?;
        let subvolumes = writer.subvolumes.lock();
        let reservation = ItemReservation::changing(ITEMS).growing_by(NAME_ITEMS);
        let (mut change, directory) = InodeChange::start(target, reservation)?;
        let InodeChange { locked, handle, .. } = &mut change;
        let state = locked.of(directory);
        target.subvolume.check_not_deleted()?;
        state.check_may_name()?;
        writer.names_of(&directory).check_free(self.number(), name)?;
        let (mode, compression) = inherited_by_subvolume(self, state, root)?;
        let root = NewInode { mode, ..*root };
        let id = writer.ids.next_subvolume(&subvolumes, writer.manager.trees().root())?;
        let uuid = Uuid::new_v4();
        apply(handle, || {
            let nodesize = writer.manager.volume().nodesize();
            let tree = handle.create_tree(id, &new_root(handle, uuid, nodesize))?;
            make_root_directory(handle, &mut TreeItems::new(tree), &root, compression)?;
            let index = directory.next_index(state)?;
            enter_subvolume(writer, &directory, id, name, index, handle.generation())?;
            state.names_grew(handle.generation(), name.len() as i64);
            directory.put_item(state)?;
            enter_uuid(writer, uuid, id)
        })?;
        change.end()?;
        let filesystem = self.subvolume().filesystem();
        filesystem.sync()?;
        filesystem.subvolume_by_id(id)
    }

    /// Takes a snapshot of `subvolume`, whatever its size, that is named `name` here. It includes
    /// all earlier changes, and is durable when this returns.
    ///
    /// # Errors
    /// As [`create_child`](Self::create_child).
    pub fn snapshot_child(
        &self,
        name: &OsStr,
        subvolume: &Subvolume,
        kind: SnapshotKind,
    ) -> Result<Subvolume> {
        let (name, filesystem) = (name.as_bytes(), subvolume.filesystem());
        let writer = filesystem.writer()?;
        check_name(name)?;
        let subvolumes = writer.subvolumes.lock();
        subvolume.live()?.check_not_deleted()?;
        let _quota = reserve_quota(self.core(), self.subvolume().id(), 0, NAME_ITEMS)?;
        // The snapshot adds a reference to each child of the source's root.
        let source = writer.live_tree(subvolume.id())?;
        let children = source.look(&source.root().into())?.node().nritems() as u64;
        let space = writer.manager.space();
        let reservation =
            space.insertion_bytes(ITEMS) + space.reference_bytes(children + MORE_CHILDREN);
        let _reservation =
            writer.manager.reserve(SpaceKind::Metadata, reservation, Priority::Normal)?;
        let pending = Arc::new(Pending {
            source: subvolume.id(),
            id: writer.ids.next_subvolume(&subvolumes, writer.manager.trees().root())?,
            directory: self.open_inode()?.clone(),
            subvolume: self.subvolume().shared_live()?,
            name: name.to_vec(),
            is_read_only: kind == SnapshotKind::ReadOnly,
            outcome: Mutex::default(),
        });
        writer.snapshots.queue.lock().push(pending.clone());
        let committed = filesystem.sync();
        writer.snapshots.queue.lock().clear();
        let outcome = pending.outcome.lock().take();
        // The snapshot's own error is more to the point than that the commit failed because of it.
        match outcome {
            Some(outcome) => outcome?,
            None => return Err(committed.err().unwrap_or(Error::NotWritable)),
        }
        committed?;
        // Files that are open in the source without a name have no owner in the snapshot. As in the
        // kernel, they are deleted from it at once: `btrfs check` stumbles over two snapshots that
        // share one. After a failure they stay listed, and are deleted when the file system is
        // opened for writing again.
        let _ = resume_orphans(writer, pending.id);
        filesystem.subvolume_by_id(pending.id)
    }
}

impl Subvolume {
    /// Makes the subvolume read-only, or writable. It is durable when this returns. One that is
    /// [being sent](crate::SendGuard) stays read-only (`EPERM`).
    pub fn set_read_only(&self, is_read_only: bool) -> Result<()> {
        let filesystem = self.filesystem();
        let (writer, live) = (filesystem.writer()?, self.live()?);
        let _subvolumes = writer.subvolumes.lock();
        filesystem.sync()?;
        let reservation = writer.manager.space().insertion_bytes(1);
        let reservation =
            writer.manager.reserve(SpaceKind::Metadata, reservation, Priority::Normal)?;
        let exclusive = writer.manager.quiesce();
        if !is_read_only {
            writer.send_guards.check_free(self.id())?;
        }
        live.is_read_only.store(is_read_only, Relaxed);
        exclusive.change_root_item(self.id(), |item| {
            let flags = item.flags.get() & !ROOT_SUBVOL_RDONLY;
            item.flags = (flags | if is_read_only { ROOT_SUBVOL_RDONLY } else { 0 }).into();
        });
        drop((exclusive, reservation));
        filesystem.sync()
    }
}

fn new_root(handle: &Handle<'_>, uuid: Uuid, nodesize: u32) -> RootItem {
    let mut item = RootItem::new_zeroed();
    item.inode.generation = 1.into();
    item.inode.size = 3.into();
    item.inode.nlink = 1.into();
    item.inode.nbytes = u64::from(nodesize).into();
    item.inode.mode = 0o040_755.into();
    item.inode.flags = INODE_ROOT_ITEM_INIT.into();
    item.bytes_used = u64::from(nodesize).into();
    item.root_dirid = objectid::FIRST_FREE.into();
    item.refs = 1.into();
    item.uuid = *uuid.as_bytes();
    item.ctransid = handle.generation().into();
    item.otransid = handle.generation().into();
    item.ctime = larder_device::now().into();
    item.otime = item.ctime;
    item
}

fn make_root_directory(
    handle: &Handle<'_>,
    tree: &mut TreeItems,
    root: &NewInode,
    compression: Option<&[u8]>,
) -> Changed<()> {
    let mut item = InodeItem::new_zeroed();
    item.generation = handle.generation().into();
    item.transid = handle.generation().into();
    item.nlink = 1.into();
    item.mode = (0o040_000 | root.mode & 0o7777).into();
    item.uid = root.uid.into();
    item.gid = root.gid.into();
    let now = Timespec::from(larder_device::now());
    (item.atime, item.ctime, item.mtime, item.otime) = (now, now, now, now);
    let number = objectid::FIRST_FREE;
    if let Some(compression) = compression {
        set_compression(&mut item, compression);
        let (key, data) = attribute_item(number, handle.generation(), COMPRESSION, compression);
        tree.insert(key, &data)?;
    }
    tree.insert(Key::new(number, ItemType::INODE_ITEM, 0), item.as_bytes())?;
    let mut reference = Vec::new();
    InodeRef { index: 0, name: PARENT }.write(&mut reference);
    tree.insert(Key::new(number, ItemType::INODE_REF, number), &reference)
}
