//! Which inodes a caller could walk to from a directory that it has open.
//!
//! # Invariants
//! - An inode that is named by numbers is reached if a chain of directories leads to it, all of
//!   which the caller may search. So a number leads nowhere that a path does not.

use std::collections::HashMap;

use larder::{Directory, Inode};
use rustix::io::Errno;

use super::access::{Caller, EXECUTE};
use super::call::failed;

/// The most directories above each other. A hostile tree may contain a cycle.
const MOST_DEPTH: usize = 4096;
/// The most directories that are remembered; when there are more, all are forgotten.
const MOST_KNOWN: usize = 4096;

/// What can be reached from some directories.
pub(super) struct Reach<'s> {
    caller: Caller<'s>,
    tops: Vec<Directory>,
    /// Whether directories can be reached and searched, by subvolume and number.
    known: HashMap<(u64, u64), bool>,
}

impl<'s> Reach<'s> {
    pub(super) fn new(caller: Caller<'s>) -> Self {
        Self { caller, tops: Vec::new(), known: HashMap::new() }
    }

    /// Adds a directory that the caller has open.
    pub(super) fn add(&mut self, top: Directory) {
        self.tops.push(top);
        self.known.clear();
    }

    /// Whether the caller could walk to `inode`.
    pub(super) fn contains(&mut self, inode: &Inode) -> Result<bool, Errno> {
        if let Ok(directory) = inode.clone().into_directory() {
            let above = directory.parent().map_err(failed)?;
            return Ok(self.tops.contains(&directory) || self.searches(above)?);
        }
        for link in inode.links().map_err(failed)? {
            let above = inode.subvolume().inode(link.parent).and_then(Inode::into_directory);
            if self.searches(above.map_err(failed)?)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the caller could walk to `directory`, and search it.
    pub(super) fn searches(&mut self, directory: Directory) -> Result<bool, Errno> {
        let mut passed = Vec::new();
        let mut at = directory;
        let is_reached = loop {
            let id = (at.subvolume_id(), at.number());
            if let Some(known) = self.known.get(&id) {
                break *known;
            }
            passed.push(id);
            if passed.len() > MOST_DEPTH || self.caller.check_access(&at, EXECUTE).is_err() {
                break false;
            }
            if self.tops.contains(&at) {
                break true;
            }
            let above = at.parent().map_err(failed)?;
            if above == at {
                break false;
            }
            at = above;
        };
        if self.known.len() + passed.len() > MOST_KNOWN {
            self.known.clear();
        }
        self.known.extend(passed.into_iter().map(|id| (id, is_reached)));
        Ok(is_reached)
    }
}
