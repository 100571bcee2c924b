//! Finding a name or a path, and opening the inode of an entry.

use std::ffi::OsStr;
use std::path::Path;

use larder_format::item::{DirEntries, NAME_MAX};
use larder_format::{FormatError, ItemType, name_hash, objectid};
use larder_platform::OsStrExt;

use crate::directory::entry::{DirEntry, Target};
use crate::directory::hashed::FIRST_POSITION;
use crate::directory::path::resolve;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::inode::Inode;
use crate::handle::subvolume::Subvolume;
use crate::item::links::Link;
use crate::item::metadata::FileType;
use crate::item::subvolume_info::SubvolumeName;

impl Directory {
    /// The inode at `path`, from here. A symbolic link at the end is not followed. Absolute paths
    /// start at the root of the subvolume, and `..` does not lead out of it.
    pub fn lookup(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.find_at(path.as_ref(), false)
    }

    /// Like [`lookup`](Self::lookup), but follows a symbolic link at the end.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Inode> {
        self.find_at(path.as_ref(), true)
    }

    /// The directory that holds this one. For the root of a subvolume it is the directory with the
    /// subvolume's name, for the root of the top level the root itself.
    pub fn parent(&self) -> Result<Self> {
        if let Some(entry) = self.stands_in() {
            return self.subvolume().inode(entry.directory)?.into_directory();
        }
        if !self.is_subvolume_root() {
            return self.while_unchanged(|| {
                self.subvolume().inode(self.own_link()?.parent)?.into_directory()
            });
        }
        let Some(name) = self.subvolume().name()? else { return Ok(self.clone()) };
        let subvolume = self.subvolume().filesystem().subvolume_by_id(name.parent)?;
        subvolume.inode(name.directory)?.into_directory()
    }

    /// The name of this directory, which is no root of a subvolume. The caller has locked it.
    ///
    /// # Errors
    /// `ENOENT` if it was removed.
    fn own_link(&self) -> Result<Link> {
        match self.subvolume().settled_link(self.number()) {
            Err(Error::MissingItem { .. })
                if self.try_live_inode().is_some_and(|live| live.is_unlinked()) =>
            {
                Err(Error::NotFound)
            }
            found => found.map(|(_, link)| link),
        }
    }

    fn find_at(&self, path: &Path, follow_last: bool) -> Result<Inode> {
        let root = self.subvolume().root();
        let found = root.and_then(|root| resolve(self, &root, path, follow_last));
        found.map_err(|error| error.about(path))
    }

    /// The inode named `name` here; a symbolic link is not followed.
    pub fn child(&self, name: &OsStr) -> Result<Inode> {
        self.child_named(name.as_bytes())
    }

    /// Subvolume and number of the inode named `name` here, which is not opened.
    #[doc(hidden)]
    pub fn child_id(&self, name: &OsStr) -> Result<(u64, u64)> {
        match self.while_unchanged(|| self.find(name.as_bytes()))?.ok_or(Error::NotFound)? {
            Target::Inode(number) => Ok((self.subvolume_id(), number)),
            Target::Subvolume(id) => Ok((id, objectid::FIRST_FREE)),
        }
    }

    pub(crate) fn child_named(&self, name: &[u8]) -> Result<Inode> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let found = self.while_unchanged(|| {
            let target = self.find(name)?.ok_or(Error::NotFound)?;
            self.open_target(target, name, None)
        });
        Ok(found?.owned_as(self))
    }

    /// The inode of an entry of this directory.
    pub(super) fn open_entry(&self, entry: &DirEntry) -> Result<Inode> {
        let opened = self.while_unchanged(|| {
            if self.try_live_inode().is_none() {
                return self.open_listed(entry);
            }
            // The entry may have been renamed or removed since it was listed. If it has come back, it
            // has another index.
            if self.find(&entry.name)? != Some(entry.target) {
                return Err(Error::NotFound);
            }
            self.open_target(entry.target, &entry.name, None)
        });
        Ok(opened?.owned_as(self))
    }

    /// The inode of an entry that was listed, by its position too.
    pub(super) fn open_listed(&self, entry: &DirEntry) -> Result<Inode> {
        let index = Some(entry.index).filter(|index| *index < FIRST_POSITION);
        match (entry.target, entry.file_type) {
            (Target::Inode(number), FileType::Directory) => {
                self.open_directory(number, &entry.name, index)
            }
            (target, _) => self.open_target(target, &entry.name, index),
        }
    }

    fn open_directory(&self, number: u64, name: &[u8], index: Option<u64>) -> Result<Inode> {
        let directory = self.subvolume().directory_inode(number)?.into_directory()?;
        directory.check_named_by(self.number(), name, index)?;
        Ok(directory.inode)
    }

    /// Looks at names while no thread changes any of this directory.
    pub(super) fn while_unchanged<T>(&self, look: impl FnOnce() -> T) -> T {
        match self.try_live_inode() {
            Some(live) => live.while_locked(look),
            None => look(),
        }
    }

    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<Target>> {
        match self.find_hashed(name) {
            Ok(None) | Err(_) if self.may_lack_index() => {
                let mut entries = self.entries_from(0)?;
                let named = std::iter::from_fn(|| entries.advance().transpose())
                    .find(|entry| entry.as_ref().is_ok_and(|entry| entry.name == name));
                named.transpose().map(|entry| entry.map(|entry| entry.target))
            }
            found => found,
        }
    }

    fn find_hashed(&self, name: &[u8]) -> Result<Option<Target>> {
        let key = self.key(ItemType::DIR_ITEM, name_hash::dir_name(name));
        let found = self.subvolume().view().get_with(key, |item| find_in(item, name))?;
        found.unwrap_or(Ok(None)).map_err(|problem| self.subvolume().bad_item(key, problem))
    }

    /// The inode of this directory's entry `name`, at `index` if that is known.
    pub(super) fn open_target(
        &self,
        target: Target,
        name: &[u8],
        index: Option<u64>,
    ) -> Result<Inode> {
        match target {
            Target::Inode(number) => {
                let inode = self.subvolume().inode(number)?;
                if inode.file_type() != FileType::Directory {
                    return Ok(inode);
                }
                let directory = Self { inode };
                directory.check_named_by(self.number(), name, index)?;
                Ok(directory.inode)
            }
            Target::Subvolume(id) => {
                let root = nested(self.subvolume(), id, self.number(), name, index)?;
                Ok(root.map_or_else(|| Inode::empty_subvolume(self, id), Self::into_inode))
            }
        }
    }

    /// Checks that the reference of the directory names this entry and no other. The caller has
    /// locked the directory of the entry.
    fn check_named_by(&self, parent: u64, name: &[u8], index: Option<u64>) -> Result<()> {
        let is_its = |link: &Link| {
            (link.parent, link.name.as_bytes()) == (parent, name)
                && index.is_none_or(|index| index == link.index)
        };
        if self.try_live_inode().and_then(|live| live.is_named(is_its)) == Some(true) {
            return Ok(());
        }
        let (key, link) = match self.subvolume().settled_link(self.number()) {
            // Nothing is left that says otherwise.
            Err(_) if self.may_lack_index() => return Ok(()),
            link => link?,
        };
        if self.number() != objectid::FIRST_FREE && is_its(&link) {
            if let Some(live) = self.try_live_inode() {
                live.set_name(Some(link));
            }
            return Ok(());
        }
        let problem = format!(
            "entry \"{}\" of directory {parent} leads to a directory that is named elsewhere",
            name.escape_ascii()
        );
        Err(self.subvolume().bad_item(key, FormatError::invalid("inode reference", problem)))
    }
}

/// The location in the entry `name` among those of an item.
fn find_in(item: &[u8], name: &[u8]) -> Result<Option<Target>, FormatError> {
    for entry in DirEntries::new(item) {
        let entry = entry?;
        if entry.name == name {
            return Target::from_item(&entry).map(Some);
        }
    }
    Ok(None)
}

/// The root directory of the subvolume `id` if the entry `name` of `directory` is its name, at
/// `index` if that is known. `None` if the subvolume is gone or named elsewhere, as in a snapshot
/// of the subvolume around it.
fn nested(
    subvolume: &Subvolume,
    id: u64,
    directory: u64,
    name: &[u8],
    index: Option<u64>,
) -> Result<Option<Directory>> {
    let is_its = |its: SubvolumeName| {
        (its.parent, its.directory, &*its.name) == (subvolume.id(), directory, name)
            && index.is_none_or(|index| index == its.index)
    };
    let core = subvolume.filesystem().core();
    let is_named_here = id != objectid::FS_TREE
        && match core.subvolume_name(id) {
            // Nothing is left that says otherwise.
            Err(_) if core.volume().rescue().ignore_bad_roots => true,
            its => its?.is_some_and(is_its),
        };
    if !is_named_here {
        return Ok(None);
    }
    match subvolume.filesystem().subvolume_by_id(id) {
        Ok(subvolume) => subvolume.root().map(Some),
        Err(Error::NoSuchSubvolume(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
