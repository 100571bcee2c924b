//! Facts that relate different inodes of a tree, as sums of fingerprints that are zero in a sound
//! tree. When one is not, [`super::relations`] looks for the facts that have no counterpart.

use larder_format::item::FileType;

use crate::context::Context;

// The kinds of facts.
const LINK: u64 = 1;
const TYPE: u64 = 2;
const ORPHAN: u64 = 3;
const SUBVOLUME: u64 = 4;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link<'a> {
    pub(crate) directory: u64,
    pub(crate) index: u64,
    pub(crate) name: &'a [u8],
    /// Number of the inode, or id of the subvolume.
    pub(crate) target: u64,
}

impl Link<'_> {
    fn fingerprint(&self, context: &Context<'_>, what: u64) -> u64 {
        let name = context.fingerprints.of_bytes(self.name);
        context.fingerprints.of(what, [self.directory, self.index, name, self.target])
    }

    /// The fingerprint of a name of a subvolume.
    pub(crate) fn subvolume_fingerprint(&self, context: &Context<'_>) -> u64 {
        self.fingerprint(context, SUBVOLUME)
    }
}

/// The sums of a tree or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Directory entries less inode references.
    pub(crate) links: u64,
    /// File types that entries say less those that the inodes have.
    pub(crate) types: u64,
    /// Inodes without names less orphan items.
    pub(crate) orphans: u64,
    /// Directory entries of subvolumes.
    pub(crate) subvolumes: u64,
}

impl Sums {
    /// Adds the sums of another part.
    pub(crate) fn add(&mut self, other: &Self) {
        self.links = self.links.wrapping_add(other.links);
        self.types = self.types.wrapping_add(other.types);
        self.orphans = self.orphans.wrapping_add(other.orphans);
        self.subvolumes = self.subvolumes.wrapping_add(other.subvolumes);
    }

    /// Adds a directory entry that names an inode.
    pub(crate) fn add_entry(&mut self, context: &Context<'_>, link: &Link<'_>, entry: FileType) {
        self.links = self.links.wrapping_add(link.fingerprint(context, LINK));
        let fact = context.fingerprints.of(TYPE, [link.target, entry as u64]);
        self.types = self.types.wrapping_add(fact);
    }

    /// Adds a directory entry that names a subvolume.
    pub(crate) fn add_subvolume_entry(&mut self, context: &Context<'_>, link: &Link<'_>) {
        self.subvolumes = self.subvolumes.wrapping_add(link.subvolume_fingerprint(context));
    }

    /// Adds an inode reference.
    pub(crate) fn add_reference(&mut self, context: &Context<'_>, link: &Link<'_>) {
        self.links = self.links.wrapping_sub(link.fingerprint(context, LINK));
    }

    /// Adds an inode with so many names.
    pub(crate) fn add_named_inode(
        &mut self,
        context: &Context<'_>,
        ino: u64,
        file_type: FileType,
        names: u32,
    ) {
        let fact = context.fingerprints.of(TYPE, [ino, file_type as u64]);
        self.types = self.types.wrapping_sub(fact.wrapping_mul(u64::from(names)));
    }

    /// Adds an inode with a link count of 0.
    pub(crate) fn add_unlinked(&mut self, context: &Context<'_>, ino: u64) {
        self.orphans = self.orphans.wrapping_add(context.fingerprints.of(ORPHAN, [ino]));
    }

    /// Adds an orphan item.
    pub(crate) fn add_orphan_item(&mut self, context: &Context<'_>, ino: u64) {
        self.orphans = self.orphans.wrapping_sub(context.fingerprints.of(ORPHAN, [ino]));
    }
}
