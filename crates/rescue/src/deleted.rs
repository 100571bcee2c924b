//! Files that were deleted.
//!
//! A leaf is copied when it changes, and its older copies stay on the device until their space is
//! used again. A file was deleted if an older leaf of a subvolume has its inode and the subvolume
//! has it no more. The reader takes the subvolume of the last commit that had the inode. It puts
//! that subvolume, and the checksums of the data, together from blocks that are not newer.
//!
//! # Invariants
//! - Only a number that the subvolume does not have is that of a deleted file; btrfs gives each
//!   number once.
//! - Data counts as that of the file only if checksums of that time prove it.
//! - Memory: 8 bytes for each inode of one subvolume at a time, and what is told of each file.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use larder_device::Device;
use larder_format::item::InodeItem;
use larder_format::{ItemType, Key, Logical, Node, read_exact_item};
use larder_volume::{OpenError, OpenOptions, Rescue, Volume};

use crate::RescueError;
use crate::blocks::{Block, Blocks};
use crate::evidence::Evidence;
use crate::missing::Missing;
use crate::progress::{Progress, Tracker};
use crate::salvage;
use crate::scan;
use crate::trees::{PastRoots, Roots, past_roots, put_together_until};

/// A file that was deleted, or a symbolic link, pipe, socket or device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedFile {
    /// Id of its subvolume.
    pub subvolume: u64,
    /// Number of its inode.
    pub inode: u64,
    /// The newest commit that is known to have it.
    pub generation: u64,
    /// The leaf of that commit that has its inode.
    pub block: Logical,
    /// The last commit before it was gone, as far as that is known.
    pub until: u64,
}

/// The deleted files of a file system, and the commits that had them.
#[derive(Debug)]
pub struct Past {
    devices: Vec<Arc<dyn Device>>,
    blocks: Arc<Blocks>,
    roots: PastRoots,
    /// The newest of the last commits first.
    files: Vec<DeletedFile>,
}

impl Past {
    /// Finds the deleted files of the file system on `devices`, some of which may be missing.
    ///
    /// # Errors
    /// As those of [`find_states`](crate::find_states).
    pub fn find(
        devices: Vec<Arc<dyn Device>>,
        tell: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
    ) -> Result<Self, RescueError> {
        let evidence = Arc::new(Evidence::of(devices.clone())?);
        let tracker = Tracker::new(tell);
        let (found, _) = scan::scan(&evidence, &tracker)?;
        let blocks = Arc::new(Blocks::new(evidence, found));
        let mut missing = Missing::new(&blocks);
        let roots = Roots::of(&blocks, &mut missing);
        let mut leaves: BTreeMap<u64, Vec<&Block>> = BTreeMap::new();
        for leaf in blocks.all().iter().filter(|block| block.level == 0) {
            leaves.entry(leaf.owner).or_default().push(leaf);
        }
        let mut files = Vec::new();
        for subvolume in roots.subvolumes(&blocks) {
            tracker.advance(0)?;
            let mut kept = Vec::new();
            let tree = roots.tree(&blocks, &mut missing, subvolume);
            tree.for_each_item(&blocks, &mut |key, _| {
                if key.item_type == ItemType::INODE_ITEM {
                    kept.push(key.objectid);
                }
            });
            let own = leaves.get(&subvolume).map(Vec::as_slice).unwrap_or_default();
            files.extend(deleted_in(&blocks, subvolume, own, &kept));
        }
        drop(missing);
        files.sort_unstable_by_key(|file| (Reverse(file.until), file.subvolume, file.inode));
        let roots = past_roots(&blocks);
        Ok(Self { devices, blocks, roots, files })
    }

    /// The files, those that were deleted last first.
    pub fn files(&self) -> &[DeletedFile] {
        &self.files
    }

    /// The subvolumes with deleted files as they were in a commit, as far as their blocks are left.
    /// Data without a right checksum is not read.
    ///
    /// # Errors
    /// If the devices cannot be opened.
    pub fn volume(&self, until: u64) -> Result<Option<Volume>, OpenError> {
        let mut subvolumes: Vec<u64> = self.files.iter().map(|file| file.subvolume).collect();
        subvolumes.sort_unstable();
        subvolumes.dedup();
        let rescue = Rescue { ignore_super_flags: true, ..Rescue::NONE };
        let mut missing = Missing::new(&self.blocks);
        let options = OpenOptions { degraded: true, rescue, ..OpenOptions::default() };
        let volume = salvage::volume(&self.blocks, &mut missing, &self.devices, &options)?;
        drop(missing);
        let (stock, root) = put_together_until(&self.blocks, &subvolumes, &self.roots, until);
        Ok(root.map(|root| volume.with_stand_ins(&root, Arc::new(stock))))
    }
}

/// The files that these leaves of a subvolume have, and the subvolume no more; it has the inodes
/// `kept`, which ascend.
fn deleted_in(
    blocks: &Blocks,
    subvolume: u64,
    leaves: &[&Block],
    kept: &[u64],
) -> impl Iterator<Item = DeletedFile> {
    let mut files: BTreeMap<u64, DeletedFile> = BTreeMap::new();
    for leaf in leaves {
        let Some(bytes) = blocks.read(&leaf.pointer()) else { continue };
        for (key, data) in Node::from_checked(&bytes).iter_items() {
            if !is_file(key, data) || kept.binary_search(&key.objectid).is_ok() {
                continue;
            }
            let file = DeletedFile {
                subvolume,
                inode: key.objectid,
                generation: leaf.generation,
                block: Logical(leaf.logical),
                until: blocks.evidence.superblock.generation.get(),
            };
            let known = files.entry(key.objectid).or_insert(file);
            if (known.generation, known.block) < (file.generation, file.block) {
                *known = file;
            }
        }
    }
    for leaf in leaves.iter().filter(|leaf| leaf.first.get() <= leaf.last.get()) {
        for (inode, file) in files.range_mut(leaf.first.objectid.get()..=leaf.last.objectid.get()) {
            let key = Key::new(*inode, ItemType::INODE_ITEM, 0);
            let has_room = (leaf.first.get()..=leaf.last.get()).contains(&key);
            if file.generation < leaf.generation && has_room {
                file.until = file.until.min(leaf.generation - 1);
            }
        }
    }
    files.into_values()
}

/// Whether an item is the inode of something with a name that is no directory.
fn is_file(key: Key, data: &[u8]) -> bool {
    const TYPE: u32 = 0o170_000;
    const DIRECTORY: u32 = 0o040_000;
    key.item_type == ItemType::INODE_ITEM
        && read_exact_item::<InodeItem>(data).is_ok_and(|inode| {
            inode.nlink.get() > 0 && ![0, DIRECTORY].contains(&(inode.mode.get() & TYPE))
        })
}
