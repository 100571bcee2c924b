//! Making and deleting subvolumes. Each of these is a commit of its own.
//!
//! # Invariants
//! - Whoever makes, deletes or marks a subvolume holds `subvolumes`.
//! - A subvolume is marked as deleted or read-only with the door closed: who is inside has checked that
//!   it can be changed, and that stays so until it leaves.

use std::sync::atomic::Ordering::Relaxed;

use larder_format::feature::IncompatFlags;
use larder_format::item::{
    DirEntries, DirEntry, DirItemHeader, FileType as EntryType, INODE_ROOT_ITEM_INIT, InodeItem,
    InodeRef, ROOT_SUBVOL_DEAD, ROOT_SUBVOL_RDONLY, RootItem, RootRef, uuid_key,
};
use larder_format::{ItemType, Key, Uuid, name_hash, objectid};
use larder_transaction::space::{Priority, SpaceKind};
use larder_transaction::{Cleaning, Error as ChangeError, Exclusive, Handle, Items, TreeItems};
use zerocopy::{FromZeros, IntoBytes};

use super::create::NewInode;
use super::inherit::attribute_item;
use super::names::{NewEntry, check_name};
use super::node::Locked;
use super::orphans::orphan_key;
use super::property::{COMPRESSION, set_compression};
use super::{Changed, Writer, apply, node_of, now};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::subvolume::Subvolume;

/// Items that a subvolume takes: root, inode, reference and property, entry and index, the directory, two
/// references, uuid, orphan; and as many to spare.
pub(super) const ITEMS: u64 = 20;
/// Items of these in the tree that has its name: entry and index, the directory.
pub(super) const NAME_ITEMS: u64 = 3;
/// Tree blocks that are given up in one step of a deletion.
const BLOCKS_PER_STEP: u64 = 256;
/// `.` and `..`, as far as the reference of a subvolume's root is concerned.
const PARENT: &[u8] = b"..";

impl Inode {
    /// Makes an empty subvolume named `name` in this directory, whose root has the owner and
    /// permissions of `root`, as far as a default ACL of this directory allows. It is durable when this returns.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_subvolume(&self, name: &[u8], root: &NewInode) -> Result<Subvolume> {
        let (writer, directory) = (self.writer()?, self.node()?);
        self.expect_directory()?;
        check_name(name)?;
        let _subvolumes = writer.subvolumes.lock();
        let within_limits = self.subvolume().within_limits(0, NAME_ITEMS)?;
        let mut handle = writer.join(self.subvolume(), ITEMS, Priority::Normal)?;
        handle.keep_within_limits(within_limits);
        let mut locked = Locked::new([directory]);
        let state = locked.of(directory);
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
    pub(super) fn enter_subvolume(
        &self,
        id: u64,
        name: &[u8],
        index: u64,
        generation: u64,
    ) -> Changed<()> {
        self.names().insert(&NewEntry {
            directory: node_of(self),
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
    pub(super) fn leave_subvolume(&self, id: u64) -> Changed<u64> {
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

    /// Deletes the subvolume named `name` in this directory with all that is in it. The name is gone
    /// durably before anything else goes; if that is interrupted, opening the file system for writing
    /// completes it.
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` for what is no subvolume, `ENOTEMPTY` if subvolumes are nested in it, `EPERM` for
    /// the default subvolume and for one that is [held](Subvolume::hold), `EROFS`.
    pub fn delete_subvolume(&self, name: &[u8]) -> Result<()> {
        let (writer, filesystem) = (self.writer()?, self.subvolume().filesystem());
        self.expect_directory()?;
        let _subvolumes = writer.subvolumes.lock();
        let room = writer.manager.space().insertion_bytes(ITEMS);
        let room = writer.manager.reserve(SpaceKind::Metadata, room, Priority::Deleting)?;
        let root = self.lookup(name)?;
        if !root.is_subvolume_root() {
            return Err(Error::NotASubvolume);
        }
        let id = root.subvolume().id();
        filesystem.check_deletable(id)?;
        let cleaning = writer.manager.begin_cleaning();
        let exclusive = writer.manager.close();
        self.subvolume().live()?.check_writable()?;
        writer.holds.check_free(id)?;
        self.unname_subvolume(&exclusive, root.subvolume(), name)?;
        drop((exclusive, room));
        filesystem.sync()?;
        Ok(writer.drop_subvolume(&cleaning, id)?)
    }

    /// Takes the name of a subvolume away and lists it as an orphan.
    fn unname_subvolume(
        &self,
        exclusive: &Exclusive<'_>,
        subvolume: &Subvolume,
        name: &[u8],
    ) -> Result<()> {
        let (writer, directory, id) = (self.writer()?, self.node()?, subvolume.id());
        let mut locked = Locked::new([directory]);
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
        subvolume.live()?.is_gone.store(true, Relaxed);
        Ok(())
    }
}

impl Subvolume {
    /// Makes the subvolume read-only, or not. It is durable when this returns. One that is
    /// [held](Self::hold) stays read-only (`EPERM`).
    pub fn set_read_only(&self, is_read_only: bool) -> Result<()> {
        let filesystem = self.filesystem();
        let (writer, live) = (filesystem.writer()?, self.live()?);
        let _subvolumes = writer.subvolumes.lock();
        filesystem.sync()?;
        let room = writer.manager.space().insertion_bytes(1);
        let room = writer.manager.reserve(SpaceKind::Metadata, room, Priority::Normal)?;
        let exclusive = writer.manager.close();
        if live.is_gone.load(Relaxed) {
            return Err(Error::NoSuchSubvolume(self.id()));
        }
        if !is_read_only {
            writer.holds.check_free(self.id())?;
        }
        live.is_read_only.store(is_read_only, Relaxed);
        exclusive.change_root_item(self.id(), |item| {
            let flags = item.flags.get() & !ROOT_SUBVOL_RDONLY;
            item.flags = (flags | if is_read_only { ROOT_SUBVOL_RDONLY } else { 0 }).into();
        });
        drop((exclusive, room));
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
        let handle = writer.manager.join(1, Priority::Normal)?;
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
    pub(super) fn resume_subvolume_deletions(&self) -> Result<()> {
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
    /// Gives up the tree of a subvolume that was deleted, in steps, and takes it from the list.
    fn drop_subvolume(&self, cleaning: &Cleaning<'_>, id: u64) -> Changed<()> {
        if self.manager.tree(id)?.is_some() {
            while !self.manager.drop_tree(id, BLOCKS_PER_STEP)? {
                cleaning.stepped();
            }
        }
        let handle = self.manager.join(1, Priority::Cleaning)?;
        let mut root_tree = TreeItems::new(self.manager.root_tree().clone());
        apply(&handle, || root_tree.remove(orphan_key(id)))?;
        handle.end()
    }

    /// An id that no subvolume has. All that were made are in the root tree.
    pub(super) fn next_subvolume(&self) -> Result<u64> {
        let root_tree = TreeItems::new(self.manager.root_tree().clone());
        let last = Key::new(objectid::LAST_FREE, ItemType(u8::MAX), u64::MAX);
        let last = root_tree.at_or_before(last)?.map_or(0, |(key, _)| key.objectid);
        let id = last.max(objectid::FIRST_FREE - 1) + 1;
        if id <= objectid::LAST_FREE { Ok(id) } else { Err(Error::AttributeTooLarge) }
    }

    /// Enters a new uuid into the uuid tree, where there is one.
    pub(super) fn enter_uuid(&self, uuid: Uuid, id: u64) -> Changed<()> {
        let Some(tree) = self.manager.tree(objectid::UUID_TREE)? else { return Ok(()) };
        let key = uuid_key(uuid, ItemType::UUID_KEY_SUBVOL);
        TreeItems::new(tree).insert(key, &id.to_le_bytes())
    }

    /// Takes a subvolume from those of a uuid. One that is not there was not entered by whoever made it.
    pub(super) fn forget_uuid(&self, uuid: Uuid, item_type: ItemType, id: u64) -> Changed<()> {
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
