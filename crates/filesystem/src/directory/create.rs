//! Creating inodes.

use std::ffi::OsStr;
use std::path::Path;

use larder_btree::LiveTree;
use larder_format::item::{FileExtentHeader, InodeItem, InodeRef};
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::{ItemType, Key};
use larder_platform::OsStrExt;
use larder_transaction::{Items, TreeItems};
use zerocopy::IntoBytes;

use crate::change::changeable::Changeable;
use crate::change::locks::LockedInode;
use crate::changed::{Changed, apply};
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::file::File;
use crate::handle::inode::Inode;
use crate::inode::inheritance::inherited;
use crate::item::attribute::attribute_item;
use crate::item::metadata::FileType;
use crate::item::new::{NewInode, NewItem, entry_type, inline_item, new_item};
use crate::live::inherited::{Inherited, PASSED_ON, S_ISGID};
use crate::live::inode::InodeState;
use crate::live::names::{Names, NewEntry, check_name};
use crate::live::open::OpenInode;
use crate::live::orphans::orphan_key;
use crate::operation::inode_change::{InodeChange, ItemReservation};

/// Items of an inode without a name: inode, three attributes, orphan.
const UNNAMED_ITEMS: u64 = 5;
/// Items of a new inode with a name: inode and reference, three attributes, extent, entry and
/// index, and the directory's inode.
const ITEMS: u64 = 9;
/// The longest target of a symbolic link (`PATH_MAX` without its end).
const MOST_TARGET_BYTES: usize = 4095;

impl Directory {
    /// Creates a regular file without a name, which inherits from this directory like any file in
    /// it. [`link_child`](Self::link_child) gives it a name; without one it is deleted with its
    /// last handle, and by a crash.
    ///
    /// # Errors
    /// `EINVAL` for other types, `ENOENT` in a directory that was removed, `EPERM`,
    /// `EROFS`, `ENOSPC`, `EDQUOT`.
    pub fn create_unnamed(&self, new: &NewInode) -> Result<File> {
        let directory = self.changeable()?;
        if FileType::from_mode(new.mode) != Some(FileType::Regular) {
            return Err(Error::NotAFile);
        }
        let reservation = ItemReservation::adding(UNNAMED_ITEMS);
        let (mut change, inode) = InodeChange::start(directory, reservation)?;
        let generation = change.handle.generation();
        let state = change.locked.of(inode);
        state.check_may_name()?;
        let mut draft = self.draft(new, directory, state, generation, None)?;
        let handle = change.unlock();
        draft.item.nlink = 0.into();
        let tree = directory.subvolume.tree();
        apply(&handle, || {
            draft.insert(tree, None)?;
            TreeItems::new(tree.clone()).insert(orphan_key(draft.number), &[])
        })?;
        let live = draft.into_live_inode(directory)?;
        live.write().is_unnamed = true;
        live.opens.unlink();
        handle.end()?;
        Inode::of_live_inode(self.subvolume().clone(), live).into_file()
    }

    /// Creates an inode named `name` in this directory: a file, a directory, a device node, a pipe
    /// or a socket. It inherits flags, the compression property and the default ACL of the
    /// directory.
    ///
    /// # Errors
    /// `EEXIST`, `ENAMETOOLONG`, `EOVERFLOW` for too many names of one hash, `EPERM`, `EROFS`,
    /// `ENOSPC`, `EDQUOT`.
    pub fn create_child(&self, name: &OsStr, new: &NewInode) -> Result<Inode> {
        if new.file_type()? == FileType::Symlink {
            return Err(Error::Invalid("a symbolic link has a target"));
        }
        self.make(name.as_bytes(), new, None)
    }

    /// Creates a symbolic link to `target` named `name` in this directory; mode and device of `new`
    /// are ignored.
    ///
    /// # Errors
    /// As [`create_child`](Self::create_child), and `ENOENT` for an empty target.
    pub fn symlink_child(&self, name: &OsStr, target: &Path, new: &NewInode) -> Result<Inode> {
        let target = target.as_os_str().as_bytes();
        check_target(self, target)?;
        let new = NewInode { mode: 0o120_777, device: (0, 0), ..*new };
        self.make(name.as_bytes(), &new, Some(target))
    }

    fn make(&self, name: &[u8], new: &NewInode, target: Option<&[u8]>) -> Result<Inode> {
        self.make_drafted(name, ITEMS, |directory, state, generation| {
            self.draft(new, directory, state, generation, target)
        })
    }

    /// Creates an inode named `name`, as `draft` describes it from the state of this directory and
    /// the running transaction. It takes `items` items at most.
    pub(crate) fn make_drafted(
        &self,
        name: &[u8],
        items: u64,
        draft: impl FnOnce(Changeable<'_>, &mut InodeState, u64) -> Result<Draft>,
    ) -> Result<Inode> {
        let directory = self.changeable()?;
        check_name(name)?;
        let (mut change, inode) = InodeChange::start(directory, ItemReservation::adding(items))?;
        let InodeChange { writer, locked, handle } = &mut change;
        let (state, generation) = (locked.of(inode), handle.generation());
        self.check_not_removed()?;
        state.check_may_name()?;
        let mut names = writer.names_of(&inode);
        names.check_free(self.number(), name)?;
        let draft = draft(directory, state, generation)?;
        apply(handle, || {
            let index = inode.next_index(state)?;
            draft.insert_named(&mut names, inode, name, index, generation)?;
            state.names_grew(generation, name.len() as i64);
            inode.put_item(state)
        })?;
        let live = draft.into_live_inode(directory)?;
        change.end()?;
        Ok(Inode::of_live_inode(self.subvolume().clone(), live))
    }

    /// The draft of a new inode in this directory, whose state is `state`.
    pub(crate) fn draft(
        &self,
        new: &NewInode,
        directory: Changeable<'_>,
        state: &mut InodeState,
        generation: u64,
        target: Option<&[u8]>,
    ) -> Result<Draft> {
        let file_type = new.file_type()?;
        let inherited = inherited(self, state)?;
        let number = directory.subvolume.inode_numbers.next()?;
        let mut item = new_item(new, generation, target);
        let attributes = inherited.pass_on(new, file_type, &state.item, &mut item);
        let policy = self.core().write_policy();
        item.flags = (item.flags() | policy.flags_of(file_type)).bits().into();
        let mut items: Vec<NewItem> = attributes
            .iter()
            .map(|(name, value)| attribute_item(number, generation, name, value))
            .collect();
        items.extend(target.map(|target| inline_item(number, generation, target)));
        Ok(Draft { number, file_type, item, items })
    }

    /// Whether a new inode in this directory would inherit anything: from the directory, or from
    /// the options for new files.
    #[doc(hidden)]
    pub fn passes_something_on(&self) -> Result<bool> {
        let live = self.live_inode()?;
        let Inherited { default_acl, compression } = &*inherited(self, &mut live.write())?;
        let item = self.item();
        Ok(default_acl.is_some()
            || compression.is_some()
            || item.mode.get() & S_ISGID != 0
            || item.flags().intersects(PASSED_ON)
            || !self.core().write_policy().flags_of(FileType::Regular).is_empty())
    }
}

/// An inode that is not in its tree yet.
pub(crate) struct Draft {
    pub(crate) number: u64,
    pub(crate) file_type: FileType,
    pub(crate) item: InodeItem,
    /// Its items besides the inode item and names.
    pub(crate) items: Vec<NewItem>,
}

impl Draft {
    /// Inserts it into its tree, with the reference to its name if it has one.
    pub(crate) fn insert(&self, tree: &LiveTree, reference: Option<&NewItem>) -> Changed<()> {
        let location = Key::new(self.number, ItemType::INODE_ITEM, 0);
        let mut items = vec![(location, self.item.as_bytes())];
        let others = reference.into_iter().chain(&self.items);
        items.extend(others.map(|(key, data)| (*key, &**data)));
        items.sort_unstable_by_key(|(key, _)| *key);
        Ok(tree.insert_batch(&items)?)
    }

    /// Inserts it into its tree, with its name in `directory`.
    pub(crate) fn insert_named(
        &self,
        names: &mut Names,
        directory: LockedInode<'_>,
        name: &[u8],
        index: u64,
        generation: u64,
    ) -> Changed<()> {
        let mut reference = Vec::new();
        InodeRef { index, name }.write(&mut reference);
        let reference = (Key::new(self.number, ItemType::INODE_REF, directory.number()), reference);
        self.insert(names.tree(), Some(&reference))?;
        names.insert(&NewEntry {
            directory: &directory,
            name,
            index,
            location: Key::new(self.number, ItemType::INODE_ITEM, 0),
            file_type: entry_type(self.file_type),
            generation,
        })
    }

    /// The live inode of an inode that was inserted into its tree, which is that of `directory`.
    pub(crate) fn into_live_inode(self, directory: Changeable<'_>) -> Result<OpenInode> {
        let Changeable { writer, subvolume, .. } = directory;
        let live = writer.inodes().create(subvolume, self.number, self.file_type, self.item)?;
        let is_xattr = |(key, _): &NewItem| key.item_type == ItemType::XATTR_ITEM;
        live.write().has_no_capability = !self.items.iter().any(is_xattr);
        Ok(live)
    }
}

/// Refuses targets that no symbolic link can have.
pub(crate) fn check_target(directory: &Inode, target: &[u8]) -> Result<()> {
    let nodesize = directory.core().volume().nodesize() as usize;
    let most = leaf_data_size(nodesize) - ITEM_HEADER_SIZE - size_of::<FileExtentHeader>();
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    if target.contains(&0) {
        return Err(Error::Invalid("the target of a symbolic link has a byte that ends it"));
    }
    let sector = directory.core().sectorsize() as usize;
    if target.len() > MOST_TARGET_BYTES.min(most).min(sector - 1) {
        return Err(Error::NameTooLong);
    }
    Ok(())
}
