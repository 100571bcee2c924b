//! Whether anything else refers to an extent of a file.
//!
//! # Invariants
//! - A look-up ends with the first other reference that it finds: how often an extent is shared, and
//!   by how many files, does not matter.
//! - It keeps the answers for a bounded number of extents, since a file may refer to a few extents
//!   from very many places in turn.
//! - On a file system that is open for writing it looks at the last commit, whose space it keeps. If
//!   that is given up, it looks again at the next one.

use std::collections::HashMap;

use larder_format::Logical;
use larder_transaction::KeptTrees;
use larder_transaction::extent::{Backrefs, FoundExtent, Referrer};

use super::resolve::{SoughtExtent, data_extent};
use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;

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
    state: State,
}

/// A committed state, and what refers to extents in it.
struct State {
    backrefs: Backrefs<'static>,
    /// In a file system that is open for writing.
    kept: Option<KeptTrees>,
}

impl SharingLookup {
    pub(crate) fn new(filesystem: &Filesystem, own: OwnReferences) -> Result<Self> {
        let state = State::last(filesystem)?;
        Ok(Self { filesystem: filesystem.clone(), own, answers: HashMap::new(), state })
    }

    /// Whether there is another reference than the own ones to the data extent at `logical`. With
    /// `is_own_leaf` no other subvolume has the leaves with the own ones.
    pub(crate) fn is_shared(&mut self, logical: u64, is_own_leaf: bool) -> Result<bool> {
        if let Some(answer) = self.answers.get(&logical) {
            return Ok(*answer);
        }
        let answer = loop {
            let answer = self.own.is_shared(&self.state.backrefs, logical, is_own_leaf);
            if self.state.kept.as_ref().is_none_or(KeptTrees::is_kept) {
                break answer?;
            }
            self.state = State::last(&self.filesystem)?;
        };
        if self.answers.len() == MOST_ANSWERS {
            self.answers.clear();
        }
        self.answers.insert(logical, answer);
        Ok(answer)
    }
}

impl State {
    fn last(filesystem: &Filesystem) -> Result<Self> {
        let kept = filesystem.try_writer().map(|writer| writer.manager().keep_trees());
        let root_tree = match &kept {
            Some(kept) => kept.root_tree().clone(),
            None => filesystem.committed_root_tree()?,
        };
        Ok(Self { backrefs: Backrefs::committed(root_tree)?, kept })
    }
}

impl OwnReferences {
    /// Whether there is another reference to the data extent at `logical`. With `is_own_leaf` no
    /// other subvolume has the leaves with the own ones.
    pub(crate) fn is_shared(
        self,
        backrefs: &Backrefs<'_>,
        logical: u64,
        is_own_leaf: bool,
    ) -> Result<bool> {
        match data_extent(backrefs, Logical(logical)) {
            // It is newer.
            Err(Error::NotFound) => Ok(false),
            found => self.are_not_all(backrefs, &found?, is_own_leaf),
        }
    }

    fn are_not_all(
        self,
        backrefs: &Backrefs<'_>,
        extent: &FoundExtent,
        is_own_leaf: bool,
    ) -> Result<bool> {
        let wanted = SoughtExtent { start: extent.range.start, at: None };
        for referrer in backrefs.referrers(extent)? {
            let referrer = referrer?;
            if let Referrer::File { root, inode, offset } = referrer {
                let is_own = self.has(root, inode, offset);
                // A subvolume that is there has the file that its reference names.
                if !is_own && backrefs.has_subvolume(root)? {
                    return Ok(true);
                }
                if is_own && is_own_leaf {
                    continue;
                }
            }
            for leaf in backrefs.leaves(extent, referrer)? {
                let leaf = leaf?;
                let places: Vec<_> = wanted.places_in_leaf(&leaf).collect::<Result<_>>()?;
                let mut has_other = |subvolume| {
                    places.iter().any(|place| !self.has(subvolume, place.inode, place.origin))
                };
                if backrefs.any_tree(&leaf, &mut has_other)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn has(self, subvolume: u64, inode: u64, origin: u64) -> bool {
        (self.subvolume, self.inode) == (subvolume, inode)
            && self.origin.is_none_or(|own| own == origin)
    }
}
