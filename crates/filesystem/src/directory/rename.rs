//! Renaming.

use std::collections::HashSet;
use std::ffi::OsStr;

use larder_format::{FormatError, ItemType, Key, objectid};
use larder_locks::RankedReadGuard;
use larder_locks::rank::RENAMES;
use larder_platform::OsStrExt;

use crate::change::locks::{LockedInode, LockedInodes};
use crate::changed::{Changed, apply};
use crate::commit::references::{enter_subvolume, leave_subvolume};
use crate::core::writer::Writer;
use crate::directory::create::Draft;
use crate::directory::entry::Target;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::inode::Inode;
use crate::item::metadata::FileType;
use crate::item::new::{NewInode, entry_type};
use crate::live::names::{NewEntry, check_name};
use crate::operation::inode_change::{InodeChange, ItemReservation};
use crate::writeback::orphan_deletion::delete_orphans;

/// Items that change: two entries and indexes, two references or four of subvolumes, an orphan,
/// four inodes; and a whiteout with its entry, index, reference and access ACL.
const ITEMS: u64 = 18;
/// An overlay's mark for a removed name: a character device 0:0 without permissions.
const WHITEOUT_MODE: u32 = 0o020_000;

/// What happens to an inode that has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It loses the name.
    Replace,
    /// It keeps it: `EEXIST`.
    NoReplace,
    /// It gets the old name. It must exist.
    Exchange,
    /// It loses the name, and a whiteout of this owner and group gets the old one.
    Whiteout {
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// It keeps it: `EEXIST`. If there is none, a whiteout of this owner and group gets the old
    /// name.
    NoReplaceWhiteout {
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
}

impl RenameMode {
    /// What gets the old name.
    fn whiteout(self) -> Option<NewInode> {
        match self {
            Self::Whiteout { uid, gid } | Self::NoReplaceWhiteout { uid, gid } => {
                Some(NewInode { mode: WHITEOUT_MODE, uid, gid, umask: 0, device: (0, 0) })
            }
            _ => None,
        }
    }
}

/// A name in a directory, and its inode.
struct Dentry<'a> {
    directory: &'a Directory,
    name: &'a [u8],
    inode: Inode,
    target: Target,
    /// The name's index if it leads to a directory that stands for a subvolume, which no reference
    /// tells. Such a name only ever goes, so that the index stays true as long as the target.
    index: Option<u64>,
}

impl<'a> Dentry<'a> {
    fn find(directory: &'a Directory, name: &'a [u8]) -> Result<Self> {
        // Looked up first: if the name leads elsewhere later, the index does not match.
        let found = directory.find(name)?.ok_or(Error::NotFound)?;
        let inode = directory.child_named(name)?;
        let index = inode.is_empty_subvolume().then(|| directory.index_of(name)).transpose()?;
        let target = if inode.is_empty_subvolume() {
            found
        } else if inode.is_subvolume_root() {
            Target::Subvolume(inode.subvolume().id())
        } else {
            Target::Inode(inode.number())
        };
        Ok(Self { directory, name, inode, target, index })
    }

    fn is_directory(&self) -> bool {
        self.inode.file_type() == FileType::Directory
    }
}

/// A name whose directory and inode are locked.
#[derive(Clone, Copy)]
struct Locked<'c, 'a> {
    dentry: &'c Dentry<'c>,
    directory: LockedInode<'a>,
    /// None for a directory that stands for a subvolume.
    inode: Option<LockedInode<'a>>,
}

/// No name moves as long as this lives.
#[doc(hidden)]
pub struct WithoutRenames<'a> {
    _renames: RankedReadGuard<'a, (), RENAMES>,
}

impl Directory {
    /// Waits for renames, and keeps others waiting: for callers that compare a path and then act.
    /// The caller renames nothing meanwhile.
    ///
    /// # Errors
    /// `EROFS`.
    #[doc(hidden)]
    pub fn without_renames(&self) -> Result<WithoutRenames<'_>> {
        Ok(WithoutRenames { _renames: self.writer()?.renames.read() })
    }

    /// Renames `name` of this directory to `new_name` in `to`; `mode` says what happens to an inode
    /// that has the new name. Names of subvolumes move to any subvolume, others within their own.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY` also for a subvolume that would be
    /// replaced, `EXDEV`, `EINVAL` for a directory that would move below itself, `EMLINK`,
    /// `EOVERFLOW`, `EPERM`, `EROFS` also for a read-only subvolume that would move to another
    /// directory, `ENOSPC`, `EDQUOT`.
    pub fn rename_child(
        &self,
        name: &OsStr,
        to: &Self,
        new_name: &OsStr,
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_child_if(name, to, new_name, mode, |_, _| Ok(()))
    }

    /// As [`rename_child`](Self::rename_child), if `may` allows it for the inode that moves and the
    /// one that has the new name. It can be asked several times, the last time for those that lose
    /// their names.
    ///
    /// # Errors
    /// Those of `may` too.
    pub fn rename_child_if<E: From<Error>>(
        &self,
        name: &OsStr,
        to: &Self,
        new_name: &OsStr,
        mode: RenameMode,
        may: impl Fn(&Inode, Option<&Inode>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        let writer = self.writer()?;
        check_name(name)?;
        check_name(new_name)?;
        // No directory moves while this compares their paths.
        let renaming = writer.renames.write();
        loop {
            let old = Dentry::find(self, name)?;
            let there = match Dentry::find(to, new_name) {
                Err(Error::NotFound) => None,
                found => Some(found?),
            };
            may(&old.inode, there.as_ref().map(|there| &there.inode))?;
            if self.try_rename(&old, to, new_name, there.as_ref(), mode)? {
                break;
            }
        }
        drop(renaming);
        delete_orphans(writer);
        Ok(())
    }

    /// Renames, unless the lookup is out of date. Returns whether it did.
    fn try_rename(
        &self,
        old: &Dentry<'_>,
        to: &Directory,
        new_name: &[u8],
        there: Option<&Dentry<'_>>,
        mode: RenameMode,
    ) -> Result<bool> {
        let (from, target) = (self.changeable()?, to.changeable()?);
        check(old, to, there, mode)?;
        if there.is_some_and(|there| there.inode == old.inode) {
            return Ok(true);
        }
        let moved = old.inode.live_inode()?;
        let replaced = there.and_then(|there| there.inode.try_live_inode());
        let (mut change, [from_inode, to_inode, moved, last]) = InodeChange::start_with(
            target,
            ItemReservation::adding(ITEMS),
            [from.live, target.live, moved, replaced.unwrap_or(moved)],
        )?;
        from.subvolume.check_writable()?;
        let replaced = replaced.map(|_| last);
        let InodeChange { writer, locked, handle } = &mut change;
        let is_unchanged = self.find(old.name)? == Some(old.target)
            && to.find(new_name)? == there.map(|there| there.target);
        if !is_unchanged {
            return Ok(false);
        }
        let generation = handle.generation();
        let old = Locked { dentry: old, directory: from_inode, inode: Some(moved) };
        let there = there.map(|dentry| Locked { dentry, directory: to_inode, inode: replaced });
        let mut moving =
            Change { writer, generation, locked, old, moved, there, to: to_inode, new_name, mode };
        moving.check_inodes(to)?;
        moving.check_room()?;
        let whiteout = mode
            .whiteout()
            .map(|new| self.draft(&new, from, moving.locked.of(from_inode), generation, None));
        let whiteout = whiteout.transpose()?;
        apply(handle, || {
            moving.run()?;
            whiteout.iter().try_for_each(|draft| moving.white_out(draft))
        })?;
        change.end()?;
        Ok(true)
    }

    /// Whether this directory is `other` or lies below it, across subvolumes.
    fn is_within(&self, other: &Inode) -> Result<bool> {
        let mut at = self.clone();
        let mut passed = HashSet::new();
        loop {
            if *at == *other {
                return Ok(true);
            }
            let (subvolume, number) = (at.subvolume().id(), at.number());
            // Nothing is above the top level, and nothing leads to a deleted subvolume any more.
            let is_top = subvolume == objectid::FS_TREE || at.subvolume().live()?.is_deleted();
            if at.is_subvolume_root() && is_top {
                return Ok(false);
            }
            if !passed.insert((subvolume, number)) {
                let problem = FormatError::invalid("inode reference", "it leads in a circle");
                return Err(at.subvolume().bad_item(at.key(ItemType::INODE_REF, 0), problem));
            }
            at = at.parent()?;
        }
    }
}

/// Refuses inodes that cannot be moved.
fn check(
    old: &Dentry<'_>,
    to: &Directory,
    there: Option<&Dentry<'_>>,
    mode: RenameMode,
) -> Result<()> {
    let is_one_subvolume = old.directory.subvolume() == to.subvolume();
    if old.inode.is_empty_subvolume() {
        return Err(Error::DirectoryNotEmpty);
    }
    if !is_one_subvolume && !old.inode.is_subvolume_root() {
        return Err(Error::CrossSubvolume);
    }
    if old.is_directory() && to.is_within(&old.inode)? {
        return Err(Error::Invalid("a directory would be below itself"));
    }
    match (mode, there) {
        (RenameMode::NoReplace | RenameMode::NoReplaceWhiteout { .. }, Some(_)) => {
            Err(Error::AlreadyExists)
        }
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        (RenameMode::Exchange, Some(there)) => {
            if there.inode.is_empty_subvolume() {
                return Err(Error::DirectoryNotEmpty);
            }
            if !is_one_subvolume && !there.inode.is_subvolume_root() {
                return Err(Error::CrossSubvolume);
            }
            if there.is_directory() && old.directory.is_within(&there.inode)? {
                return Err(Error::Invalid("a directory would be below itself"));
            }
            Ok(())
        }
        (RenameMode::Replace | RenameMode::Whiteout { .. }, Some(there)) => {
            check_replaceable(old, there)
        }
        (_, None) => Ok(()),
    }
}

fn check_replaceable(old: &Dentry<'_>, there: &Dentry<'_>) -> Result<()> {
    if there.inode == old.inode {
        return Ok(());
    }
    match (old.is_directory(), there.is_directory()) {
        (true, false) => Err(Error::NotADirectory),
        (false, true) if old.directory.is_within(&there.inode)? => Err(Error::DirectoryNotEmpty),
        (false, true) => Err(Error::IsADirectory),
        _ if there.inode.is_subvolume_root() => Err(Error::DirectoryNotEmpty),
        _ => Ok(()),
    }
}

/// A rename in progress.
struct Change<'c, 'a> {
    writer: &'a Writer,
    generation: u64,
    locked: &'c mut LockedInodes<'a>,
    old: Locked<'c, 'a>,
    /// The inode of the old name.
    moved: LockedInode<'a>,
    /// What has the new name already.
    there: Option<Locked<'c, 'a>>,
    /// The directory that gets the new name.
    to: LockedInode<'a>,
    new_name: &'c [u8],
    mode: RenameMode,
}

impl Change<'_, '_> {
    /// Refuses to move protected inodes, and read-only subvolumes to another directory, and to
    /// replace directories with names in them.
    fn check_inodes(&mut self, to: &Directory) -> Result<()> {
        let old = self.old.dentry;
        old.directory.check_not_removed()?;
        to.check_not_removed()?;
        if old.inode.is_subvolume_root() {
            to.subvolume().live()?.check_not_deleted()?;
        }
        self.locked.of(self.old.directory).check_may_unname()?;
        self.locked.of(self.to).check_may_name()?;
        for Locked { dentry, inode, .. } in [Some(self.old), self.there].into_iter().flatten() {
            let Some(inode) = inode else { continue };
            self.locked.of(inode).check_may_unname()?;
            // The root of a subvolume would have another parent, though no item of it says so.
            if dentry.inode.is_subvolume_root() && old.directory != to {
                dentry.inode.subvolume().live()?.check_writable()?;
            }
        }
        if let Some(there) = self.there {
            self.locked.of(self.to).check_may_unname()?;
            let has_names = there.dentry.is_directory()
                && there.inode.is_some_and(|inode| self.locked.of(inode).size_bytes > 0);
            if self.mode != RenameMode::Exchange && has_names {
                return Err(Error::DirectoryNotEmpty);
            }
        }
        Ok(())
    }

    /// Refuses names and references that do not fit.
    fn check_room(&self) -> Result<()> {
        let check_ref = |named: Locked<'_, '_>, directory: LockedInode<'_>, name: &[u8]| {
            let Some(inode) = named.inode.filter(|_| !named.dentry.inode.is_subvolume_root())
            else {
                return Ok(());
            };
            let names = self.writer.names_of(&inode);
            names.check_ref_room(inode.number(), directory.number(), name)
        };
        check_ref(self.old, self.to, self.new_name)?;
        match self.there {
            None => self.writer.names_of(&self.to).check_room(self.to.number(), self.new_name),
            Some(there) if self.mode == RenameMode::Exchange => {
                check_ref(there, self.old.directory, self.old.dentry.name)
            }
            Some(_) => Ok(()),
        }
    }

    fn run(&mut self) -> Changed<()> {
        let (old, there) = (self.old, self.there);
        self.take(old)?;
        if let Some(there) = there {
            self.take(there)?;
        }
        match there.and_then(|there| there.inode.zip(Some(there.dentry))) {
            Some((inode, dentry)) if self.mode == RenameMode::Exchange => {
                self.give(&old.dentry.inode, self.moved, self.to, self.new_name)?;
                // Second, as in the kernel: listings show that order.
                self.give(&dentry.inode, inode, old.directory, old.dentry.name)
            }
            replaced => {
                if let Some((inode, _)) = replaced {
                    inode.lose_name(self.locked.of(inode), self.generation)?;
                }
                self.give(&old.dentry.inode, self.moved, self.to, self.new_name)
            }
        }
    }

    /// Removes a name.
    fn take(&mut self, Locked { dentry, directory, inode }: Locked<'_, '_>) -> Changed<()> {
        let mut names = self.writer.names_of(&directory);
        let index = if let Some(index) = dentry.index {
            index
        } else if dentry.inode.is_subvolume_root() {
            leave_subvolume(self.writer, &directory, dentry.inode.subvolume().id())?
        } else {
            inode.inspect(|inode| inode.set_name(None));
            names.remove_ref(dentry.inode.number(), directory.number(), dentry.name)?
        };
        names.remove(&directory, dentry.name, index)?;
        self.directory_grew(directory, -(dentry.name.len() as i64))
    }

    /// Gives an inode a name.
    fn give(
        &mut self,
        inode: &Inode,
        live: LockedInode<'_>,
        directory: LockedInode<'_>,
        name: &[u8],
    ) -> Changed<()> {
        let index = directory.next_index(self.locked.of(directory))?;
        if inode.is_subvolume_root() {
            let (writer, id) = (self.writer, inode.subvolume().id());
            writer.renamed.renamed(id, self.generation, writer.manager.durable_generation());
            enter_subvolume(writer, &directory, id, name, index, self.generation)?;
            return self.directory_grew(directory, name.len() as i64);
        }
        let mut names = self.writer.names_of(&directory);
        names.insert_ref(inode.number(), directory.number(), name, index)?;
        names.insert(&NewEntry {
            directory: &directory,
            name,
            index,
            location: Key::new(inode.number(), ItemType::INODE_ITEM, 0),
            file_type: entry_type(inode.file_type()),
            generation: self.generation,
        })?;
        self.directory_grew(directory, name.len() as i64)?;
        let state = self.locked.of(live);
        state.touch(self.generation, false);
        live.put_item(state)
    }

    /// Gives the old name to a whiteout.
    fn white_out(&mut self, draft: &Draft) -> Changed<()> {
        let Locked { dentry, directory, .. } = self.old;
        let index = directory.next_index(self.locked.of(directory))?;
        let mut names = self.writer.names_of(&directory);
        draft.insert_named(&mut names, directory, dentry.name, index, self.generation)?;
        self.directory_grew(directory, dentry.name.len() as i64)
    }

    fn directory_grew(&mut self, directory: LockedInode<'_>, bytes: i64) -> Changed<()> {
        let state = self.locked.of(directory);
        state.names_grew(self.generation, bytes);
        directory.put_item(state)
    }
}
