//! Where the space went: what each path, subvolume and way of storing takes, alone and shared.
//!
//! [`Accounting::of`] reads the last commit once, and counts in this order:
//!
//! 1. `roots`: the root tree names all trees that refer to data: subvolumes, those that are being
//!    deleted, and the few trees that keep data for the file system itself.
//! 2. `forest`: the *inner* blocks of these trees, level by level from the top. Snapshots share
//!    blocks, and each block is read once. Its set of trees is complete when its level is reached,
//!    because all that lead to it are above. At the bottom each leaf has its set, without having
//!    been read.
//! 3. `opened`: which subvolumes are *opened*, so that the result tells about paths in them. That
//!    takes a reading of their leaves each, and so some snapshots stay closed: together no more
//!    leaves are read again than there are, however many snapshots share them.
//! 4. `leaves`: opened subvolumes in the order of their keys, where the names of an inode come
//!    before its extents; then the leaves that only closed ones have, in the order of addresses.
//!    Each item that refers to an extent becomes a `Reference` with the set
//!    of its leaf.
//! 5. `sorter`: the references are sorted by extent, in runs that go to a temporary file.
//! 6. `sums`: the references of one extent follow each other. The union of their sets says which
//!    subvolumes refer to the extent. Each directory above a reference (`places`) gets the bytes of
//!    the extent once. Only the deepest directory above all references holds the extent alone.
//!
//! [`SharedExtents::find`] goes the same way without opening any subvolume, and keeps only
//! which extents are shared: `filesystem du` asks it when it has many extents to ask about.
//!
//! Nothing here looks at back references: whether a leaf is shared, and how, follows from the
//! blocks above it. So shared (parent) references and those of snapshots need no resolving, and a
//! wrong reference count makes no wrong sum.
//!
//! # Memory
//! About 50 bytes for each leaf of a subvolume, 100 for each directory of an opened one, the sets
//! (`root_sets`), and the buffer of `sorter`. Nothing for each file or extent, except of the
//! files that the result names. The temporary file has 64 bytes for each reference of a leaf.

#![forbid(unsafe_code)]

mod data_use;
mod forest;
mod fragments;
mod leaves;
mod opened;
mod places;
mod ranges;
mod reference;
mod root_sets;
mod roots;
mod sharing;
mod shown;
mod sorter;
mod stored_as;
mod sums;
mod watch;

use std::ops::ControlFlow;

use larder_filesystem::{Filesystem, Result};

use forest::Forest;
use leaves::Leaves;
use places::Places;
use root_sets::RootSets;
use roots::Roots;
use sums::Sums;
use watch::Watch;

pub use data_use::DataUse;
pub use fragments::{Fragmentation, FragmentedFile, FragmentedFiles};
pub use ranges::RangeUnion;
pub use sharing::SharedExtents;
pub use shown::{
    Accounting, BlockGroupUse, EncodingUse, Others, Part, PlaceKind, PlaceUse, SubvolumeState,
    SubvolumeUse,
};
pub use stored_as::StoredAs;
pub use watch::{AccountingPhase, AccountingProgress};

impl Accounting {
    /// What takes the space of the last commit: by path, subvolume, compression and block group.
    /// Sums are exact. `observe` is told how far it is, for each leaf at most, and may stop it. The
    /// temporary file is in `TMPDIR`, or in `/var/tmp`.
    ///
    /// Tree blocks that cannot be read are left out, and counted.
    ///
    /// # Errors
    /// [`InvalidInput`](larder_filesystem::ErrorKind::InvalidInput) in a file system that is open
    /// for writing, which changes meanwhile (see [`Filesystem::keep_state`]);
    /// [`Interrupted`](larder_filesystem::ErrorKind::Interrupted) if `observe` stopped it;
    /// [`NoSpace`](larder_filesystem::ErrorKind::NoSpace) if the temporary file had no room;
    /// [`Overflow`](larder_filesystem::ErrorKind::Overflow) if snapshots share their trees in more
    /// ways than fit into memory.
    pub fn of(
        filesystem: &Filesystem,
        observe: &mut dyn FnMut(AccountingProgress) -> ControlFlow<()>,
    ) -> Result<Accounting> {
        let mut watch = Watch::new(filesystem, observe)?;
        let roots = Roots::of(filesystem)?;
        let mut sets = RootSets::default();
        let forest = Forest::grow(filesystem, &roots, &mut sets, &mut watch)?;
        let default = filesystem.default_subvolume_id()?;
        let opened = opened::choose(&roots, &sets, &forest, default);
        let leaves = Leaves::read(filesystem, &roots, &sets, &forest, &opened, &mut watch)?;
        let places = Places::new(&roots, &opened, leaves.directories, leaves.largest);
        let mut sums = Sums::new(places, &roots, &opened, leaves.counted);
        sums.add_blocks(&forest, &sets);
        sums.add_extents(leaves.references, &mut sets, &mut watch)?;
        let fragmentation = leaves.fragments.shown(filesystem, &roots);
        let Watch { problems, unreadable, .. } = watch;
        let block_groups = shown::block_groups(filesystem)?;
        Ok(Accounting {
            generation: filesystem.generation(),
            block_groups,
            fragmentation,
            problems,
            unreadable_blocks: unreadable,
            ..sums.shown(filesystem, &roots, &sets)
        })
    }
}

impl SharedExtents {
    /// Finds all extents of the last commit that several files refer to, by reading all leaves of
    /// subvolumes once: much faster than asking for each of many extents. `None` if some of them
    /// cannot be read. What else holds is as for [`Accounting::of`].
    pub fn find(
        filesystem: &Filesystem,
        observe: &mut dyn FnMut(AccountingProgress) -> ControlFlow<()>,
    ) -> Result<Option<Self>> {
        sharing::find(filesystem, Watch::new(filesystem, observe)?)
    }
}
