//! The result, for those who show it.

use std::cmp::Reverse;
use std::collections::HashMap;

use larder_btree::Readahead;
use larder_filesystem::{Filesystem, Result, SpaceKind, SubvolumeInfo, links_of_item};
use larder_format::objectid::FIRST_FREE;
use larder_format::{BlockGroupFlags, ItemType, Key, Profile};
use larder_platform::OsStrExt;

use crate::fragments::Fragmentation;
use crate::leaves::Inline;
use crate::places::{DELETED, EVERYTHING, FIRST_ROOT, INTERNAL, PlaceId, PlaceSums, UNNAMED};
use crate::root_sets::RootSets;
use crate::roots::Roots;
use crate::stored_as::StoredAs;
use crate::sums::{Extents, Sums, add, alone, by_root};

/// Most places in a result.
const MOST_PLACES: usize = 2000;

/// Where the space went.
///
/// All sums are exact, in bytes, and of one copy: a profile such as RAID1 takes more on devices.
/// *Disk bytes* are those of whole extents, after compression, each extent counted once. An extent
/// stays as long as any file refers to a part of it, so that whole extents are what deleting gives
/// back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accounting {
    /// The transaction of the commit that it is about.
    pub generation: u64,
    /// Data extents.
    pub data_extents: u64,
    /// Their disk bytes.
    pub data_bytes: u64,
    /// Bytes of the tree blocks that subvolumes have, and of the few trees with data of the file
    /// system itself; not of the extent tree, checksums and others.
    pub tree_bytes: u64,
    /// Subvolumes in the order of their ids, including those that are being deleted.
    pub subvolumes: Vec<SubvolumeUse>,
    /// The places that hold most, those above others first; at index 0 everything.
    pub places: Vec<PlaceUse>,
    /// What is stored in which way; ways that nothing is stored in are left out.
    pub encodings: Vec<EncodingUse>,
    /// How fragmented files are.
    pub fragmentation: Fragmentation,
    /// Block groups in the order of their addresses.
    pub block_groups: Vec<BlockGroupUse>,
    /// Tree blocks and items that could not be read, and so are not counted.
    pub unreadable_blocks: u64,
    /// What was wrong with the first of these.
    pub problems: Vec<String>,
}

/// What a subvolume holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubvolumeUse {
    /// Its id, times and flags.
    pub info: SubvolumeInfo,
    /// Its path from the top level, without a slash at its start; `None` without one.
    pub path: Option<Vec<u8>>,
    /// Whether places inside it are listed.
    pub state: SubvolumeState,
    /// Bytes of its files that extents hold, as often as files refer to them.
    pub file_bytes: u64,
    /// Disk bytes of the extents that it refers to.
    pub disk_bytes: u64,
    /// Those of extents that no other subvolume refers to.
    pub exclusive_bytes: u64,
    /// Bytes of the tree blocks that it has.
    pub tree_bytes: u64,
    /// Those of blocks that no other subvolume has.
    pub exclusive_tree_bytes: u64,
}

/// How much a result says of a subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubvolumeState {
    /// Places in it are listed.
    Opened,
    /// It is a place as a whole: most of its tree is that of opened ones.
    Closed,
    /// It is being deleted.
    Deleted,
}

/// A place that holds data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceUse {
    /// The index of the place that it is in; 0 for that of everything itself.
    pub parent: usize,
    /// What it is.
    pub kind: PlaceKind,
    /// Its name in the place above; empty for the top level and for what is no part of a path.
    pub name: Vec<u8>,
    /// The subvolume that it is in or is; 0 for none.
    pub subvolume: u64,
    /// The inode number; 0 for none.
    pub inode: u64,
    /// Files in it and below it, itself included, without those of closed subvolumes. A file with
    /// several names counts in the place of the first.
    pub files: u64,
    /// Bytes of these files that extents hold, as often as files refer to them.
    pub file_bytes: u64,
    /// Those whose extents no other file refers to.
    pub unshared_file_bytes: u64,
    /// What it takes. For a file with several names, the others count too.
    pub part: Part,
    /// What the files directly in it take together, except for those that are places themselves.
    pub loose_files: Part,
    /// What else is in it.
    pub others: Others,
}

/// Disk bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Of extents that are referred to from here.
    pub disk_bytes: u64,
    /// Of extents that are referred to from nowhere else.
    pub exclusive_bytes: u64,
}

/// Directories, subvolumes and large files in a place that are no places of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// How many they are.
    pub count: u64,
    /// What each takes, added up: what several of them share is in the sum several times.
    pub part: Part,
}

/// The kind of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// All data.
    Everything,
    /// All subvolumes that are being deleted.
    Deleted,
    /// What the file system keeps for itself.
    Internal,
    /// What has no name, such as files that were deleted while open before a crash.
    Unnamed,
    /// A subvolume whose content is listed.
    Subvolume,
    /// A subvolume as a whole.
    ClosedSubvolume,
    /// A directory.
    Directory,
    /// A file.
    File,
}

/// What is stored in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodingUse {
    /// The way. An extent of which any part is written is not preallocated.
    pub stored_as: StoredAs,
    /// Whether the data is in tree blocks, beside the names of small files, and not in extents.
    pub is_inline: bool,
    /// Number of extents, or inline items.
    pub extents: u64,
    /// Bytes that they take.
    pub disk_bytes: u64,
    /// Bytes of them before compression.
    pub uncompressed_bytes: u64,
    /// Bytes of files that refer to them, as often as files of all subvolumes do.
    pub referenced_bytes: u64,
}

/// A block group: a range of addresses, the chunk behind it, and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockGroupUse {
    /// Its first address.
    pub logical: u64,
    /// Bytes that it can hold.
    pub total_bytes: u64,
    /// Bytes of it that extents use.
    pub used_bytes: u64,
    /// Its purpose.
    pub kind: SpaceKind,
    /// Its profile; `None` for an invalid combination.
    pub profile: Option<Profile>,
    /// Bytes that it takes on each of its devices.
    pub stripe_bytes: u64,
    /// The devices' ids, and the offsets in bytes where it is on them.
    pub stripes: Vec<(u64, u64)>,
}

/// All block groups.
pub(crate) fn block_groups(filesystem: &Filesystem) -> Result<Vec<BlockGroupUse>> {
    let groups = filesystem.block_groups()?;
    let shown = groups.iter().map(|group| {
        let chunk = filesystem.volume().chunk_at(group.logical);
        let stripes = chunk.as_ref().map_or(&[][..], |chunk| chunk.stripes());
        BlockGroupUse {
            logical: group.logical.0,
            total_bytes: group.len_bytes,
            used_bytes: group.used_bytes,
            kind: SpaceKind::of(group.flags),
            profile: BlockGroupFlags::profile(group.flags),
            stripe_bytes: chunk.as_ref().map_or(0, |chunk| chunk.bytes_per_stripe()),
            stripes: stripes.iter().map(|stripe| (stripe.devid, stripe.physical.0)).collect(),
        }
    });
    Ok(shown.collect())
}

impl Sums {
    /// The result, except for what has other sources.
    pub(crate) fn shown(
        self,
        filesystem: &Filesystem,
        roots: &Roots,
        sets: &RootSets,
    ) -> Accounting {
        let nodesize = u64::from(filesystem.node_bytes());
        let tree_blocks: u64 = self.blocks_by_set.iter().sum();
        Accounting {
            data_extents: self.extents.iter().map(|extents| extents.count).sum(),
            data_bytes: self.extents.iter().fold(0, |sum, all| all.disk_bytes.saturating_add(sum)),
            tree_bytes: tree_blocks * nodesize,
            subvolumes: self.subvolumes(filesystem, roots, sets),
            encodings: self.encodings(),
            places: self.places(roots),
            ..Accounting::default()
        }
    }

    fn subvolumes(
        &self,
        filesystem: &Filesystem,
        roots: &Roots,
        sets: &RootSets,
    ) -> Vec<SubvolumeUse> {
        let nodesize = u64::from(filesystem.node_bytes());
        let count = roots.all.len();
        let file_bytes = by_root(&self.counted.file_bytes, sets, count);
        let disk_bytes = by_root(&self.disk_by_set, sets, count);
        let exclusive_bytes = alone(&self.disk_by_set, sets, count);
        let blocks = by_root(&self.blocks_by_set, sets, count);
        let exclusive_blocks = alone(&self.blocks_by_set, sets, count);
        let shown = roots.all.iter().enumerate().filter_map(|(number, root)| {
            let info = root.info.clone()?;
            let path = filesystem.subvolume_path(info.id).ok();
            let state = match self.closed[number] {
                Some(DELETED) => SubvolumeState::Deleted,
                Some(_) => SubvolumeState::Closed,
                None => SubvolumeState::Opened,
            };
            Some(SubvolumeUse {
                path: path.map(|path| path.as_os_str().as_bytes().to_vec()),
                state,
                file_bytes: file_bytes[number],
                disk_bytes: disk_bytes[number],
                exclusive_bytes: exclusive_bytes[number],
                tree_bytes: blocks[number] * nodesize,
                exclusive_tree_bytes: exclusive_blocks[number] * nodesize,
                info,
            })
        });
        let mut shown: Vec<SubvolumeUse> = shown.collect();
        shown.sort_by_key(|subvolume| subvolume.info.id);
        shown
    }

    fn encodings(&self) -> Vec<EncodingUse> {
        let mut encodings = Vec::new();
        for number in 0..StoredAs::COUNT {
            let stored_as = StoredAs::of_number(number as u8);
            let Extents { count, disk_bytes, ram_bytes } = self.extents[number];
            let referenced_bytes = self.counted.referenced[number];
            if count > 0 || referenced_bytes > 0 {
                encodings.push(EncodingUse {
                    stored_as,
                    is_inline: false,
                    extents: count,
                    disk_bytes,
                    uncompressed_bytes: ram_bytes,
                    referenced_bytes,
                });
            }
        }
        for number in 0..StoredAs::COUNT {
            let Inline { items, stored_bytes, file_bytes, referenced_bytes } =
                self.counted.inline[number];
            if items > 0 {
                encodings.push(EncodingUse {
                    stored_as: StoredAs::of_number(number as u8),
                    is_inline: true,
                    extents: items,
                    disk_bytes: stored_bytes,
                    uncompressed_bytes: file_bytes,
                    referenced_bytes,
                });
            }
        }
        encodings
    }

    /// The places that hold most. A place holds no more than the one above, so that this is among
    /// them too.
    fn places(&self, roots: &Roots) -> Vec<PlaceUse> {
        let all = &self.places.all;
        let mut chosen: Vec<PlaceId> = (0..all.len() as PlaceId).collect();
        let has_data = |id: &PlaceId| *id == EVERYTHING || all[*id as usize].disk_bytes > 0;
        chosen.retain(has_data);
        let order = |id: &PlaceId| {
            let place = &all[*id as usize];
            (Reverse(place.disk_bytes), place.depth, *id)
        };
        if chosen.len() > MOST_PLACES {
            chosen.select_nth_unstable_by_key(MOST_PLACES, order);
            chosen.truncate(MOST_PLACES);
        }
        chosen.sort_unstable_by_key(|id| (all[*id as usize].depth, order(id)));
        let index: HashMap<PlaceId, usize> =
            chosen.iter().enumerate().map(|(index, id)| (*id, index)).collect();
        let shown = chosen.iter().map(|id| self.place(roots, &index, *id));
        let mut shown: Vec<PlaceUse> = shown.collect();
        for (id, place) in (0..).zip(all).skip(1) {
            if let Some(above) = index.get(&place.parent)
                && !index.contains_key(&id)
                && place.disk_bytes > 0
            {
                let others = &mut shown[*above].others;
                others.count += 1;
                add(&mut others.part.disk_bytes, place.disk_bytes);
                add(&mut others.part.exclusive_bytes, place.exclusive_bytes);
            }
        }
        shown
    }

    fn place(&self, roots: &Roots, index: &HashMap<PlaceId, usize>, id: PlaceId) -> PlaceUse {
        let place = &self.places.all[id as usize];
        let is_file = id as usize >= self.places.first_file;
        let kind = match id {
            EVERYTHING => PlaceKind::Everything,
            DELETED => PlaceKind::Deleted,
            INTERNAL => PlaceKind::Internal,
            UNNAMED => PlaceKind::Unnamed,
            _ if is_file => PlaceKind::File,
            _ if place.inode != FIRST_FREE => PlaceKind::Directory,
            _ if self.closed[place.root as usize].is_some() => PlaceKind::ClosedSubvolume,
            _ => PlaceKind::Subvolume,
        };
        let is_named = id >= FIRST_ROOT;
        let loose_files = match kind {
            PlaceKind::Subvolume | PlaceKind::Directory => Part {
                disk_bytes: place.loose_disk_bytes,
                exclusive_bytes: place.loose_exclusive_bytes,
            },
            _ => Part::default(),
        };
        PlaceUse {
            parent: index.get(&place.parent).copied().unwrap_or(0),
            kind,
            name: if is_named { self.name(roots, place) } else { Vec::new() },
            subvolume: if is_named { roots.id(place.root) } else { 0 },
            inode: if is_named { place.inode } else { 0 },
            files: if is_file { 1 } else { u64::from(place.files) },
            file_bytes: place.file_bytes,
            unshared_file_bytes: place.unshared_file_bytes,
            part: Part { disk_bytes: place.disk_bytes, exclusive_bytes: place.exclusive_bytes },
            loose_files,
            others: Others::default(),
        }
    }

    /// The name of a place in the one above it; empty if it has none, or it cannot be read.
    fn name(&self, roots: &Roots, place: &PlaceSums) -> Vec<u8> {
        let root = &roots.all[place.root as usize];
        if place.inode == FIRST_FREE {
            let name = root.info.as_ref().and_then(|info| info.name.as_ref());
            return name.map_or(Vec::new(), |name| name.name.clone());
        }
        let above = &self.places.all[place.parent as usize];
        let key = |item_type, offset| Key::new(place.inode, item_type, offset);
        let range = key(ItemType::INODE_REF, 0)..=key(ItemType::INODE_EXTREF, u64::MAX);
        let mut found = None;
        for item in root.tree.range(range, Readahead::None).flatten() {
            // What does not parse was noted before.
            let _ = links_of_item(item.key(), item.data(), |parent, _, name| {
                if parent == above.inode && found.is_none() {
                    found = Some(name.to_vec());
                }
            });
        }
        found.unwrap_or_default()
    }
}
