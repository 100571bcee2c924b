//! Whether anything else refers to an extent of a file.
//!
//! # Invariants
//! - A look-up ends with the first other reference that it finds: how often an extent is shared, and
//!   by how many files, does not matter.
//! - It keeps the answers for a bounded number of extents, since a file may refer to a few extents
//!   from very many places in turn.

use std::collections::HashMap;

use larder_format::Logical;
use larder_format::item::BackRef;
use larder_transaction::extent::FoundExtent;

use super::resolve::{Candidate, SoughtExtent, own_extents};
use crate::error::{Error, ErrorKind, Result};
use crate::filesystem::handle::Filesystem;
use crate::subvolume::handle::Subvolume;

/// Extents whose answers are kept.
const MOST_ANSWERS: usize = 1 << 16;

/// The references that do not make an extent shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnReferences {
    pub(crate) subvolume: u64,
    pub(crate) inode: u64,
    /// Offset in the file minus offset in the extent, which wraps around; `None` for all of the
    /// inode.
    pub(crate) origin: Option<u64>,
}

/// Answers whether extents of a file are shared, as of the last commit.
pub(crate) struct SharingLookup {
    filesystem: Filesystem,
    own: OwnReferences,
    answers: HashMap<u64, bool>,
    /// All subvolumes that are not being deleted, once they are needed.
    subvolumes: Option<Vec<u64>>,
    /// The subvolume that had the last shared extent: probably it has the next one too.
    sharer: Option<u64>,
}

impl OwnReferences {
    fn has(self, subvolume: u64, inode: u64, origin: u64) -> bool {
        (self.subvolume, self.inode) == (subvolume, inode)
            && self.origin.is_none_or(|own| own == origin)
    }
}

impl SharingLookup {
    pub(crate) fn new(filesystem: &Filesystem, own: OwnReferences) -> Self {
        let filesystem = filesystem.clone();
        Self { filesystem, own, answers: HashMap::new(), subvolumes: None, sharer: None }
    }

    /// Whether there is another reference than the own ones to the data extent at `logical`. With
    /// `is_own_leaf` no other subvolume has the leaves with the own ones.
    pub(crate) fn is_shared(&mut self, logical: u64, is_own_leaf: bool) -> Result<bool> {
        if let Some(answer) = self.answers.get(&logical) {
            return Ok(*answer);
        }
        let answer = match self.filesystem.data_extent(Logical(logical)) {
            // It is newer.
            Err(Error::NotFound) => false,
            found => self.has_other(&found?, is_own_leaf)?,
        };
        if self.answers.len() == MOST_ANSWERS {
            self.answers.clear();
        }
        self.answers.insert(logical, answer);
        Ok(answer)
    }

    fn has_other(&mut self, extent: &FoundExtent, is_own_leaf: bool) -> Result<bool> {
        let filesystem = self.filesystem.clone();
        let wanted = SoughtExtent { start: extent.range.start, at: None };
        for back_ref in filesystem.references_to(extent)? {
            match back_ref? {
                BackRef::Data { root, objectid, offset, .. } => {
                    let is_own = self.own.has(root, objectid, offset);
                    let near = Candidate::near(extent, objectid, offset);
                    // A subvolume that is there has the file that its reference names. The leaves
                    // of others may be shared.
                    if (!is_own && self.is_there(root)?)
                        || (!(is_own && is_own_leaf) && self.is_in_other(near, &wanted)?)
                    {
                        return Ok(true);
                    }
                }
                BackRef::SharedData { parent, .. } => {
                    for candidate in filesystem.candidates_in(Logical(parent), &wanted)? {
                        if self.is_in_other(candidate, &wanted)? {
                            return Ok(true);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }

    /// Whether any subvolume has one of these file extents, apart from the own ones.
    fn is_in_other(&mut self, candidate: Candidate, wanted: &SoughtExtent) -> Result<bool> {
        if let Some(sharer) = self.sharer
            && self.has(sharer, candidate, wanted)?
        {
            return Ok(true);
        }
        self.know_subvolumes()?;
        for at in 0..self.subvolumes.as_ref().map_or(0, Vec::len) {
            let id = self.subvolumes.as_ref().expect("they are known")[at];
            if self.sharer != Some(id) && self.has(id, candidate, wanted)? {
                self.sharer = Some(id);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has(&self, id: u64, candidate: Candidate, wanted: &SoughtExtent) -> Result<bool> {
        let OwnReferences { subvolume, inode, origin } = self.own;
        if (id, candidate.inode) == (subvolume, inode) && origin.is_none() {
            return Ok(false);
        }
        let Some(found) = self.open(id)? else { return Ok(false) };
        for place in own_extents(&found, candidate, wanted) {
            let (_, origin) = place?;
            if !self.own.has(id, candidate.inode, origin) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_there(&mut self, subvolume: u64) -> Result<bool> {
        self.know_subvolumes()?;
        Ok(self.subvolumes.as_ref().is_some_and(|all| all.binary_search(&subvolume).is_ok()))
    }

    fn know_subvolumes(&mut self) -> Result<()> {
        if self.subvolumes.is_some() {
            return Ok(());
        }
        let mut all = Vec::new();
        for info in self.filesystem.subvolumes() {
            let info = info?;
            if !info.is_being_deleted {
                all.push(info.id);
            }
        }
        all.sort_unstable();
        self.subvolumes = Some(all);
        Ok(())
    }

    /// A subvolume, unless it was deleted meanwhile.
    fn open(&self, id: u64) -> Result<Option<Subvolume>> {
        match self.filesystem.subvolume_by_id(id) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }
}
