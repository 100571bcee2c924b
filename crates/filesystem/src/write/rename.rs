//! Moving names.

use larder_format::{ItemType, Key};
use larder_transaction::Handle;
use larder_transaction::space::Priority;

use super::create::entry_type;
use super::names::{Names, NewEntry, check_name};
use super::node::{Locked, Node};
use super::{Changed, apply};
use crate::directory::Target;
use crate::error::{Error, Result};
use crate::inode::{FileType, Inode};

/// Items that are changed: two entries, indexes and references, an orphan, and four inodes.
const ITEMS: u64 = 11;

/// What becomes of what has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It loses the name.
    Replace,
    /// It keeps it: `EEXIST`.
    NoReplace,
    /// It gets the old name. It must be there.
    Exchange,
}

/// A name in a directory, and what it leads to.
struct Place<'a> {
    directory: &'a Inode,
    name: &'a [u8],
    inode: Inode,
}

impl Inode {
    /// Moves the name `name` of this directory to `new_name` in `to`, a directory of the same
    /// subvolume. Subvolumes cannot be moved.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EXDEV`, `EINVAL` for a directory that would
    /// move below itself, `EMLINK`, `EOVERFLOW`, `EPERM`, `EROFS`, `ENOSPC`.
    pub fn rename(&self, name: &[u8], to: &Self, new_name: &[u8], mode: RenameMode) -> Result<()> {
        let writer = self.writer()?;
        self.expect_directory()?;
        to.expect_directory()?;
        check_name(name)?;
        check_name(new_name)?;
        if self.subvolume() != to.subvolume() {
            return Err(Error::CrossSubvolume);
        }
        // Who is below whom is looked up while nobody moves a directory.
        let renaming = writer.renames.lock();
        while !self.try_rename(name, to, new_name, mode)? {}
        drop(renaming);
        writer.delete_orphans();
        Ok(())
    }

    /// Moves a name unless what was looked up has changed in between. Returns whether it did.
    fn try_rename(
        &self,
        name: &[u8],
        to: &Self,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<bool> {
        let (from_node, to_node) = (self.node()?, to.node()?);
        let old = Place { directory: self, name, inode: self.lookup(name)? };
        let there = match to.lookup(new_name) {
            Ok(inode) => Some(Place { directory: to, name: new_name, inode }),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        check(&old, to, there.as_ref(), mode)?;
        if there.as_ref().is_some_and(|there| there.inode == old.inode) {
            return Ok(true);
        }
        let writer = self.writer()?;
        let handle = writer.join(self.subvolume(), ITEMS, Priority::Normal)?;
        let mut nodes = vec![from_node, to_node, old.inode.node()?];
        if let Some(there) = &there {
            nodes.push(there.inode.node()?);
        }
        let mut locked = Locked::new(nodes);
        let target = |place: &Place<'_>| Some(Target::Inode(place.inode.number()));
        if self.find(name)? != target(&old) || to.find(new_name)? != there.as_ref().and_then(target)
        {
            return Ok(false);
        }
        locked.of(from_node).check_may_unname()?;
        locked.of(to_node).check_may_name()?;
        locked.of(old.inode.node()?).check_may_unname()?;
        let mut names = self.names();
        if let Some(there) = &there {
            let state = locked.of(there.inode.node()?);
            state.check_may_unname()?;
            locked.of(to_node).check_may_unname()?;
            let is_full = there.inode.file_type() == FileType::Directory
                && locked.of(there.inode.node()?).size_bytes > 0;
            if mode == RenameMode::Replace && is_full {
                return Err(Error::DirectoryNotEmpty);
            }
        } else {
            names.check_room(to.number(), new_name)?;
        }
        names.check_ref_room(old.inode.number(), to.number(), new_name)?;
        if mode == RenameMode::Exchange
            && let Some(there) = &there
        {
            names.check_ref_room(there.inode.number(), self.number(), name)?;
        }
        let mut change = Change { handle: &handle, names: &mut names, locked: &mut locked };
        apply(&handle, || change.run(&old, to, new_name, there.as_ref(), mode))?;
        drop(locked);
        handle.end()?;
        Ok(true)
    }

    /// Whether this directory is `other` or lies below it.
    fn is_within(&self, other: &Self) -> Result<bool> {
        let mut at = self.clone();
        loop {
            if at == *other {
                return Ok(true);
            }
            if at.is_subvolume_root() {
                return Ok(false);
            }
            at = at.parent()?;
        }
    }
}

/// Refuses what cannot be moved.
fn check(old: &Place<'_>, to: &Inode, there: Option<&Place<'_>>, mode: RenameMode) -> Result<()> {
    let is_directory = |inode: &Inode| inode.file_type() == FileType::Directory;
    let is_foreign = |inode: &Inode| inode.is_subvolume_root() || inode.is_empty_subvolume();
    if is_foreign(&old.inode) || there.is_some_and(|there| is_foreign(&there.inode)) {
        return Err(Error::CrossSubvolume);
    }
    if is_directory(&old.inode) && to.is_within(&old.inode)? {
        return Err(Error::Invalid("a directory would be below itself"));
    }
    match (mode, there) {
        (RenameMode::NoReplace, Some(_)) => Err(Error::AlreadyExists),
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        (RenameMode::Exchange, Some(there)) => {
            if is_directory(&there.inode) && old.directory.is_within(&there.inode)? {
                return Err(Error::Invalid("a directory would be below itself"));
            }
            Ok(())
        }
        (RenameMode::Replace, Some(there)) => {
            if there.inode == old.inode {
                return Ok(());
            }
            match (is_directory(&old.inode), is_directory(&there.inode)) {
                (true, false) => Err(Error::NotADirectory),
                (false, true) if old.directory.is_within(&there.inode)? => {
                    Err(Error::DirectoryNotEmpty)
                }
                (false, true) => Err(Error::IsADirectory),
                _ => Ok(()),
            }
        }
        (_, None) => Ok(()),
    }
}

/// A move in progress.
struct Change<'c, 'h, 'l> {
    handle: &'c Handle<'h>,
    names: &'c mut Names,
    locked: &'c mut Locked<'l>,
}

impl Change<'_, '_, '_> {
    fn run(
        &mut self,
        old: &Place<'_>,
        to: &Inode,
        new_name: &[u8],
        there: Option<&Place<'_>>,
        mode: RenameMode,
    ) -> Changed<()> {
        let generation = self.handle.generation();
        self.take(old)?;
        if let Some(there) = there {
            self.take(there)?;
            if mode == RenameMode::Exchange {
                self.give(&there.inode, old.directory, old.name)?;
            } else {
                let node = node_of(&there.inode);
                node.lose_name(self.locked.of(node), generation)?;
            }
        }
        self.give(&old.inode, to, new_name)
    }

    /// Takes a name away.
    fn take(&mut self, place: &Place<'_>) -> Changed<()> {
        let directory = place.directory.number();
        let index = self.names.remove_ref(place.inode.number(), directory, place.name)?;
        self.names.remove(directory, place.name, index)?;
        self.directory_grew(place.directory, -(place.name.len() as i64))
    }

    /// Gives an inode a name.
    fn give(&mut self, inode: &Inode, directory: &Inode, name: &[u8]) -> Changed<()> {
        let generation = self.handle.generation();
        let node = node_of(directory);
        let index = node.next_index(self.locked.of(node))?;
        self.names.insert_ref(inode.number(), directory.number(), name, index)?;
        self.names.insert(&NewEntry {
            directory: directory.number(),
            name,
            index,
            location: Key::new(inode.number(), ItemType::INODE_ITEM, 0),
            file_type: entry_type(inode.file_type()),
            generation,
        })?;
        self.directory_grew(directory, name.len() as i64)?;
        let node = node_of(inode);
        let state = self.locked.of(node);
        state.touch(generation, false);
        node.put_item(state)
    }

    fn directory_grew(&mut self, directory: &Inode, bytes: i64) -> Changed<()> {
        let node = node_of(directory);
        let state = self.locked.of(node);
        state.names_grew(self.handle.generation(), bytes);
        node.put_item(state)
    }
}

/// The node of an inode that was checked to have one.
fn node_of(inode: &Inode) -> &Node {
    inode.try_node().expect("it can be changed")
}
