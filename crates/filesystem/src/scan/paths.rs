//! Paths for the inodes of a scan: the names of directories are cached.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::path::PathBuf;

use larder_format::{FormatError, ItemType, Key, objectid};
use larder_platform::{OsStrExt, OsStringExt};

use crate::error::Result;
use crate::handle::inode::Inode;
use crate::handle::subvolume::Subvolume;
use crate::item::links::{Link, check_name};

/// The most names that are cached; then all are dropped.
const MOST_NAMES: usize = 1 << 16;

/// How often a path is looked for again while directories move.
const MOST_TRIES: usize = 8;

/// The paths of the inodes of a scan. Each thread has its own.
#[derive(Debug)]
pub struct Paths {
    subvolume: Subvolume,
    names: HashMap<u64, (Key, Link)>,
    /// The last directory and its path: most often it is the next one too.
    last: (u64, Vec<u8>),
}

impl Inode {
    /// All its paths from the root of its subvolume, without a slash at either end.
    pub fn paths(&self) -> Result<Vec<PathBuf>> {
        if self.is_subvolume_root() {
            return Ok(vec![PathBuf::new()]);
        }
        let mut paths = Paths::new(self.subvolume.clone());
        self.links()?.iter().map(|link| paths.of(link)).collect()
    }
}

impl Paths {
    pub(crate) fn new(subvolume: Subvolume) -> Self {
        Self { subvolume, names: HashMap::new(), last: (objectid::FIRST_FREE, Vec::new()) }
    }

    /// The path of a directory from the root of the subvolume, without a slash at either end: that
    /// of the root is empty.
    #[doc(hidden)]
    pub fn directory(&mut self, number: u64) -> Result<&[u8]> {
        if self.last.0 != number {
            let mut path = self.walk_up(number);
            // Directories that are moved meanwhile can look like a loop, and their names are stale.
            let is_live = self.subvolume.try_live().is_some();
            for _ in 0..if is_live { MOST_TRIES } else { 0 } {
                if path.is_ok() {
                    break;
                }
                self.names.clear();
                path = self.walk_up(number);
            }
            self.last = (number, path?);
        }
        Ok(&self.last.1)
    }

    /// The path of a name from the root of the subvolume, without a slash at either end.
    pub fn of(&mut self, link: &Link) -> Result<PathBuf> {
        let named = Key::new(link.parent, ItemType::DIR_INDEX, link.index);
        self.check(named, link.name.as_bytes())?;
        let directory = self.directory(link.parent)?;
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        Ok(OsString::from_vec([directory, slash, link.name.as_bytes()].concat()).into())
    }

    fn walk_up(&mut self, number: u64) -> Result<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        // A loop comes back to a directory that was cached long enough ago.
        let mut landmark = number;
        let mut at = number;
        while at != objectid::FIRST_FREE {
            let (key, link) = self.name(at)?;
            let (key, parent, name) = (*key, link.parent, link.name.as_bytes().to_vec());
            self.check(key, &name)?;
            parts.push(name);
            if parent == landmark {
                let problem = FormatError::invalid("inode reference", "it closes a loop");
                return Err(self.subvolume.bad_item(key, problem));
            }
            if parts.len().is_power_of_two() {
                landmark = parent;
            }
            at = parent;
        }
        parts.reverse();
        Ok(parts.join(&b'/'))
    }

    fn check(&self, key: Key, name: &[u8]) -> Result<()> {
        check_name("inode reference", name).map_err(|problem| self.subvolume.bad_item(key, problem))
    }

    fn name(&mut self, number: u64) -> Result<&(Key, Link)> {
        if self.names.len() >= MOST_NAMES {
            self.names.clear();
        }
        match self.names.entry(number) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => Ok(unknown.insert(self.subvolume.directory_link(number)?)),
        }
    }
}
