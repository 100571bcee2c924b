//! Making and marking subvolumes. Each of these is a commit of its own.
//!
//! # Invariants
//! - Whoever makes, deletes or marks a subvolume holds `subvolumes`.
//! - A subvolume is marked as deleted or read-only with the door closed: a thread inside has checked what
//!   it is, and that stays so until the thread leaves.

use std::sync::atomic::Ordering::Relaxed;

use larder_format::feature::IncompatFlags;
use larder_format::item::{
    DirEntries, DirEntry, DirItemHeader, FileType as EntryType, INODE_ROOT_ITEM_INIT, InodeItem,
    InodeRef, ROOT_SUBVOL_RDONLY, RootItem, RootRef, uuid_key,
};
use larder_format::{ItemType, Key, Uuid, name_hash, objectid};
use larder_transaction::space::{Priority, SpaceKind};
use larder_transaction::{Error as ChangeError, Handle, Items, TreeItems, now};
use zerocopy::{FromZeros, IntoBytes};

use crate::core::writer::{Changed, Writer, apply, live_inode_of};
use crate::directory::create::NewInode;
use crate::directory::names::{NewEntry, check_name};
use crate::error::{Error, Result};
use crate::filesystem::handle::Filesystem;
use crate::inode::handle::Inode;
use crate::inode::inheritance::attribute_item;
use crate::inode::live::Locked;
use crate::subvolume::handle::Subvolume;
use crate::xattr::property::{COMPRESSION, set_compression};

/// Items that a subvolume takes: root, inode, reference and property, entry and index, the directory, two
/// references, uuid, orphan; and as many to spare.
pub(crate) const ITEMS: u64 = 20;
/// Items of these in the tree that has its name: entry and index, the directory.
pub(crate) const NAME_ITEMS: u64 = 3;
/// `.` and `..`, as far as the reference of a subvolume's root is concerned.
const PARENT: &[u8] = b"..";

impl Inode {
    /// Makes an empty subvolume named `name` in this directory, whose root has the owner and
    /// permissions of `root`, as far as a default ACL of this directory allows. It is durable when this returns.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_subvolume(&self, name: &[u8], root: &NewInode) -> Result<Subvolume> {
        let (writer, directory) = (self.writer()?, self.live_inode()?);
        self.expect_directory()?;
        check_name(name)?;
        let _subvolumes = writer.subvolumes.lock();
        let reserve_quota = self.subvolume().reserve_quota(0, NAME_ITEMS)?;
        let mut handle = writer.join(self.subvolume(), ITEMS, Priority::Normal)?;
        handle.keep_quota(reserve_quota);
        let mut locked = Locked::new([directory]);
        let state = locked.of(directory);
        self.subvolume().live()?.check_not_deleted()?;
        state.check_may_name()?;
        self.names().check_free(self.number(), name)?;
        let (mode, compression) = self.inherited_by_subvolume(state, root.mode & 0o7777)?;
        let root = NewInode { mode, ..*root };
        let id = writer.next_subvolume()?;
        let uuid = Uuid::new_v4();
        apply(&handle, || {
            let nodesize = writer.manager.volume().nodesize();
            let tree =
                writer.manager.create_tree(&handle, id, new_root(&handle, uuid, nodesize))?;
            make_root_directory(&handle, &mut TreeItems::new(tree), &root, compression)?;
            let index = directory.next_index(state)?;
            self.enter_subvolume(id, name, index, handle.generation())?;
            state.names_grew(handle.generation(), name.len() as i64);
            directory.put_item(state)?;
            writer.enter_uuid(uuid, id)
        })?;
        drop(locked);
        handle.end()?;
        let filesystem = self.subvolume().filesystem();
        filesystem.sync()?;
        filesystem.subvolume(id)
    }

    /// Enters the name of a subvolume, and the references that go with it.
    pub(crate) fn enter_subvolume(
        &self,
        id: u64,
        name: &[u8],
        index: u64,
        generation: u64,
    ) -> Changed<()> {
        self.names().insert(&NewEntry {
            directory: live_inode_of(self),
            name,
            index,
            location: Key::new(id, ItemType::ROOT_ITEM, u64::MAX),
            file_type: EntryType::Directory,
            generation,
        })?;
        let mut reference = Vec::new();
        RootRef { dirid: self.number(), sequence: index, name }.write(&mut reference);
        let writer = self.writer().expect("it is being changed");
        let mut root_tree = TreeItems::new(writer.manager.root_tree().clone());
        for key in reference_keys(self.subvolume().id(), id) {
            root_tree.insert(key, &reference)?;
        }
        Ok(())
    }

    /// Takes the references that go with the name of a subvolume in this directory away. Returns the index
    /// of the name.
    pub(crate) fn leave_subvolume(&self, id: u64) -> Changed<u64> {
        let writer = self.writer().expect("it is being changed");
        let mut root_tree = TreeItems::new(writer.manager.root_tree().clone());
        let [reference, back] = reference_keys(self.subvolume().id(), id);
        let missing = || ChangeError::MissingItem { tree: objectid::ROOT_TREE, key: back };
        let data = root_tree.get(back)?.ok_or_else(missing)?;
        let index = RootRef::parse(&data).map(|named| named.sequence);
        root_tree.remove(reference)?;
        root_tree.remove(back)?;
        index.map_err(|problem| ChangeError::Item { tree: objectid::ROOT_TREE, key: back, problem })
    }
}

impl Subvolume {
    /// Makes the subvolume read-only, or not. It is durable when this returns. One that is
    /// [being sent](Self::guard_for_send) stays read-only (`EPERM`).
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

impl Filesystem {
    /// Makes the subvolume `id` the one that a mount shows unless it is told otherwise. It is durable
    /// when this returns.
    pub fn set_default_subvolume(&self, id: u64) -> Result<()> {
        let writer = self.writer()?;
        let _subvolumes = writer.subvolumes.lock();
        self.subvolume(id)?;
        let handle = writer.manager.start(1, Priority::Normal)?;
        let directory = writer.manager.superblock().root_dir_objectid.get();
        let key = Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(b"default"));
        let mut root_tree = TreeItems::new(writer.manager.root_tree().clone());
        let missing = Error::MissingItem { tree: objectid::ROOT_TREE, key };
        let stored = root_tree.get(key)?.ok_or(missing)?;
        let mut data = Vec::new();
        for entry in DirEntries::new(&stored) {
            let entry = entry.map_err(|problem| Error::item(objectid::ROOT_TREE, key, problem))?;
            let location = Key::new(id, ItemType::ROOT_ITEM, u64::MAX).into();
            let header = DirItemHeader { location, ..*entry.header };
            let header = if entry.name == b"default" { &header } else { entry.header };
            DirEntry { header, ..entry }.write(&mut data);
        }
        apply(&handle, || root_tree.replace(key, &data))?;
        writer.manager.change_superblock(|superblock| {
            let flags = superblock.incompat_flags.get() | IncompatFlags::DEFAULT_SUBVOL.bits();
            superblock.incompat_flags = flags.into();
        });
        handle.end()?;
        self.sync()
    }
}

impl Writer {
    /// Enters a new uuid into the uuid tree, where there is one.
    pub(crate) fn enter_uuid(&self, uuid: Uuid, id: u64) -> Changed<()> {
        let Some(tree) = self.manager.tree(objectid::UUID_TREE)? else { return Ok(()) };
        let key = uuid_key(uuid, ItemType::UUID_KEY_SUBVOL);
        TreeItems::new(tree).insert(key, &id.to_le_bytes())
    }

    /// Takes a subvolume from those of a uuid. One that is not there was not entered by whoever made it.
    pub(crate) fn forget_uuid(&self, uuid: Uuid, item_type: ItemType, id: u64) -> Changed<()> {
        let Some(tree) = self.manager.tree(objectid::UUID_TREE)? else { return Ok(()) };
        let (mut tree, key) = (TreeItems::new(tree), uuid_key(uuid, item_type));
        let Some(ids) = tree.get(key)? else { return Ok(()) };
        let is_other = |other: &&[u8]| *other != id.to_le_bytes();
        let rest: Vec<u8> = ids.chunks(8).filter(is_other).flatten().copied().collect();
        match rest.len() {
            0 => tree.remove(key),
            len if len < ids.len() => tree.replace(key, &rest),
            _ => Ok(()),
        }
    }
}

fn reference_keys(parent: u64, id: u64) -> [Key; 2] {
    [Key::new(parent, ItemType::ROOT_REF, id), Key::new(id, ItemType::ROOT_BACKREF, parent)]
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
    item.ctime = now();
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
    let now = now();
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
