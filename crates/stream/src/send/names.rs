//! The current places on the receiver, as far as they differ from the parent's.
//!
//! # Invariants
//! - A directory of the parent is where the parent has it, unless `moved` says otherwise.
//! - A directory that this stream makes is made in its final place, and stays there.
//! - Cached paths are right: moving a directory drops them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;

use larder_btree::Readahead;
use larder_filesystem::{Error, Link, Subvolume};
use larder_format::item::{DirEntries, InodeRefs};
use larder_format::{FormatError, ItemType, Key, name_hash, objectid};
use larder_platform::{OsStrExt, OsStringExt};

use super::SendError;
use super::changes::Changes;
use super::record::{bad_item, check_name};

/// The number of directories whose paths are cached.
const KEPT_PATHS: usize = 1 << 16;

/// An inode on the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Id {
    /// One of the parent, by its number there; the root, also without a parent.
    Old(u64),
    /// One that this stream makes, by its number in the snapshot.
    New(u64),
}

/// The current place of an inode that moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CurrentName {
    /// Under this name in the root, until its final place is free.
    Staged(Vec<u8>),
    /// Under a name that it has in the snapshot.
    Home(Link),
}

/// The names of directories, and of moved inodes.
pub(super) struct Names {
    new: Subvolume,
    old: Option<Subvolume>,
    changes: Arc<Changes>,
    moved: HashMap<u64, CurrentName>,
    paths: HashMap<Id, Vec<u8>>,
}

impl Names {
    pub(super) fn new(new: Subvolume, old: Option<Subvolume>, changes: Arc<Changes>) -> Self {
        Self { new, old, changes, moved: HashMap::new(), paths: HashMap::new() }
    }

    /// The identity on the receiver of the inode `ino` of the snapshot.
    pub(super) fn id(&self, ino: u64) -> Id {
        if ino != objectid::FIRST_FREE && self.changes.is_made(ino) {
            Id::New(ino)
        } else {
            Id::Old(ino)
        }
    }

    /// The new place of an inode of the parent, if it moved.
    pub(super) fn place(&self, ino: u64) -> Option<&CurrentName> {
        self.moved.get(&ino)
    }

    /// Records that an inode of the parent is now at `place`.
    pub(super) fn set_place(&mut self, ino: u64, place: CurrentName, is_directory: bool) {
        self.moved.insert(ino, place);
        if is_directory {
            self.paths.clear();
        }
    }

    /// The path of `name` in a directory.
    pub(super) fn path_in(&mut self, directory: Id, name: &[u8]) -> Result<Vec<u8>, SendError> {
        let folder = self.directory(directory)?;
        let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
        if !folder.is_empty() {
            path.extend_from_slice(folder);
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Ok(path)
    }

    /// The path of a directory; empty for the root.
    pub(super) fn directory(&mut self, directory: Id) -> Result<&[u8], SendError> {
        if !self.paths.contains_key(&directory) {
            let path = self.find_path(directory)?;
            if self.paths.len() >= KEPT_PATHS {
                self.paths.clear();
            }
            self.paths.insert(directory, path);
        }
        Ok(&self.paths[&directory])
    }

    fn find_path(&self, directory: Id) -> Result<Vec<u8>, SendError> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut len = 0;
        let mut at = directory;
        while at != Id::Old(objectid::FIRST_FREE) {
            if let Some(known) = self.paths.get(&at) {
                if !known.is_empty() {
                    names.push(known.clone());
                }
                break;
            }
            let (above, name) = self.step_up(at)?;
            // This also ends a climb in circles.
            len += name.len() + 1;
            if len > usize::from(u16::MAX) {
                return Err(SendError::PathTooLong(ino(directory)));
            }
            names.push(name);
            at = above;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// The current directory of `id`, and its name there.
    fn step_up(&self, id: Id) -> Result<(Id, Vec<u8>), SendError> {
        match (id, &self.old) {
            (Id::Old(ino), Some(old)) => match self.moved.get(&ino) {
                Some(CurrentName::Staged(name)) => {
                    Ok((Id::Old(objectid::FIRST_FREE), name.clone()))
                }
                Some(CurrentName::Home(link)) => {
                    Ok((self.id(link.parent), link.name.as_bytes().to_vec()))
                }
                None => {
                    let link = directory_link(old, ino)?;
                    Ok((Id::Old(link.parent), link.name.into_vec()))
                }
            },
            (Id::New(ino) | Id::Old(ino), _) => {
                let link = directory_link(&self.new, ino)?;
                Ok((self.id(link.parent), link.name.into_vec()))
            }
        }
    }

    /// Whether `directory` is `above`, or currently lies below it.
    pub(super) fn is_within(&self, directory: Id, above: Id) -> Result<bool, SendError> {
        let mut at = directory;
        for _ in 0..u16::MAX {
            if at == above {
                return Ok(true);
            }
            if at == Id::Old(objectid::FIRST_FREE) {
                return Ok(false);
            }
            at = self.step_up(at)?.0;
        }
        Err(SendError::PathTooLong(ino(directory)))
    }

    /// The number of directories above `ino` in the parent.
    pub(super) fn old_depth(&self, ino: u64) -> Result<usize, SendError> {
        let Some(old) = &self.old else { return Ok(0) };
        let mut at = ino;
        for depth in 0..usize::from(u16::MAX) {
            if at == objectid::FIRST_FREE {
                return Ok(depth);
            }
            at = directory_link(old, at)?.parent;
        }
        Err(SendError::PathTooLong(ino))
    }

    /// Whether the parent has `name` in its directory `directory`.
    pub(super) fn was_taken(&self, directory: u64, name: &[u8]) -> Result<bool, Error> {
        self.old.as_ref().map_or(Ok(false), |old| has_entry(old, directory, name))
    }

    /// A name in the root that neither the parent nor the snapshot has.
    pub(super) fn unused_name(&self, ino: u64, generation: u64) -> Result<Vec<u8>, SendError> {
        for number in 0_u64.. {
            let name = format!("o{ino}-{generation}-{number}").into_bytes();
            let root = objectid::FIRST_FREE;
            if !self.was_taken(root, &name)? && !has_entry(&self.new, root, &name)? {
                return Ok(name);
            }
        }
        unreachable!("a directory has fewer names than there are numbers")
    }
}

fn ino(id: Id) -> u64 {
    match id {
        Id::Old(ino) | Id::New(ino) => ino,
    }
}

/// The only name of a directory that is not the root.
pub(super) fn directory_link(subvolume: &Subvolume, ino: u64) -> Result<Link, Error> {
    let key = |parent| Key::new(ino, ItemType::INODE_REF, parent);
    let mut items = subvolume.tree().range(key(0)..=key(u64::MAX), Readahead::None);
    let missing = Error::MissingItem { tree: subvolume.id(), key: key(0) };
    let (key, bytes) = items.next_item()?.ok_or(missing)?;
    let empty = || Err(FormatError::invalid("inode reference", "it is empty"));
    let link = InodeRefs::new(bytes).next().unwrap_or_else(empty);
    let link = link
        .and_then(|link| check_name(link.name).map(|()| link))
        .map_err(|problem| bad_item(subvolume, key, problem))?;
    Ok(Link {
        parent: key.offset,
        index: link.index,
        name: OsStr::from_bytes(link.name).to_owned(),
    })
}

fn has_entry(subvolume: &Subvolume, directory: u64, name: &[u8]) -> Result<bool, Error> {
    let key = Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(name));
    let Some(item) = subvolume.tree().get(key)? else { return Ok(false) };
    for entry in DirEntries::new(&item) {
        let entry = entry.map_err(|problem| bad_item(subvolume, key, problem))?;
        if entry.name == name {
            return Ok(true);
        }
    }
    Ok(false)
}
