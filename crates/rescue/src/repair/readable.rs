//! What of a file system can be read: the files of each subvolume, by their names and content.
//!
//! # Invariants
//! - It is found out as a reader finds it: blocks that the volume's reader refuses are not read.
//! - Two states are compared without their data being read: data that lies at the same addresses,
//!   and has the same checksums, is the same.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::item::{DirEntries, FileExtent, FileType, InodeItem};
use larder_format::objectid::{CSUM_TREE, FIRST_FREE, LAST_FREE, is_subvolume};
use larder_format::{ChecksumType, ItemType, Key, name_hash};
use larder_volume::Volume;
use zerocopy::FromBytes;

use super::block::Blocks;
use super::commit::{State, each_item};
use super::files::is_name;
use super::update::Root;

/// Files that a repair loses or changes, at most so many.
const MOST_NAMED: usize = 10;

/// What can be read.
#[derive(Debug, Default)]
pub(super) struct Readable {
    /// By subvolume and inode.
    files: BTreeMap<(u64, u64), File>,
    /// Extended attributes and extents: subvolume, key, and the hash of each.
    content: BTreeSet<(u64, Key, u64)>,
    /// Names that a lookup finds: subvolume, directory, the hash of the name; and where they lead.
    names: BTreeMap<(u64, u64, u64), Vec<u64>>,
    /// The root of the checksum tree.
    checksums: Option<Root>,
}

#[derive(Clone, Copy, Debug, Default)]
struct File {
    /// The sum of what identifies attributes that no repair changes.
    attributes: u64,
    size: u64,
    is_regular: bool,
    has_item: bool,
}

fn hash(parts: &[&[u8]]) -> u64 {
    let joined: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    let sum = ChecksumType::Xxhash.compute(&joined);
    u64::from_le_bytes(sum.as_bytes().try_into().expect("8 bytes"))
}

impl Readable {
    pub(super) fn of(volume: &Volume) -> Self {
        let blocks = Blocks::strict(volume);
        let state = State::read(&blocks);
        let mut readable = Self::default();
        for tree in state.trees() {
            if tree.dropped.is_none() && is_subvolume(tree.id) {
                each_item(&blocks, tree.id, tree.root, &mut |key, data| {
                    readable.add(tree.id, key, data);
                });
            }
        }
        readable.files.retain(|_, file| file.has_item);
        readable.checksums = state.root(CSUM_TREE);
        readable
    }

    fn add(&mut self, tree: u64, key: Key, data: &[u8]) {
        let ino = key.objectid;
        if !(FIRST_FREE..=LAST_FREE).contains(&ino) {
            return;
        }
        match key.item_type {
            ItemType::INODE_ITEM if key.offset == 0 => {
                let Ok(item) = InodeItem::read_from_bytes(data) else { return };
                let file = self.files.entry((tree, ino)).or_default();
                file.has_item = FileType::from_mode(item.mode.get()).is_some();
                file.is_regular = FileType::from_mode(item.mode.get()) == Some(FileType::Regular);
                if file.is_regular {
                    file.size = item.size.get();
                }
                let numbers = [item.uid, item.gid, item.mode].map(|it| it.get().to_le_bytes());
                let (rdev, time) = (item.rdev.get(), item.mtime.sec.get());
                file.attributes =
                    hash(&[&numbers.concat(), &rdev.to_le_bytes(), &time.to_le_bytes()]);
            }
            ItemType::XATTR_ITEM => {
                let own = hash(&[b"x", &key.offset.to_le_bytes(), data]);
                self.content.insert((tree, key, own));
            }
            ItemType::EXTENT_DATA => {
                let is_hole = matches!(FileExtent::parse(data),
                    Ok(FileExtent::Regular { extent, .. }) if extent.disk_bytenr().is_none());
                if !is_hole {
                    // A repair may set the generation, the first 8 bytes.
                    let rest = data.get(8..).unwrap_or_default();
                    let own = hash(&[b"e", &key.offset.to_le_bytes(), rest]);
                    self.content.insert((tree, key, own));
                }
            }
            ItemType::DIR_ITEM => {
                for entry in DirEntries::new(data).flatten() {
                    let target = entry.header.location.get();
                    let is_found = key.offset == name_hash::dir_name(entry.name)
                        && is_name(entry.name)
                        && target.item_type == ItemType::INODE_ITEM;
                    if is_found {
                        let name = hash(&[entry.name]);
                        self.names.entry((tree, ino, name)).or_default().push(target.objectid);
                    }
                }
            }
            _ => {}
        }
    }

    /// What can be read here and not, or otherwise, in `after`: a sentence for each, some of them if
    /// they are many. Items that are `set_right` could not be read.
    pub(super) fn missing_in(&self, after: &Self, set_right: &BTreeSet<(u64, Key)>) -> Vec<String> {
        let mut missing = Vec::new();
        for ((tree, ino), file) in &self.files {
            let problem = match after.files.get(&(*tree, *ino)) {
                None => "is lost",
                Some(other) if other.attributes != file.attributes => "has other attributes",
                Some(other) if file.is_regular && other.size < file.size => "is shorter",
                Some(_) => continue,
            };
            missing.push(format!("inode {ino} of subvolume {tree} {problem}"));
        }
        let mut changed = BTreeSet::new();
        for (tree, key, _) in self.content.difference(&after.content) {
            let ino = &key.objectid;
            if set_right.contains(&(*tree, *key)) {
                continue;
            }
            if self.files.contains_key(&(*tree, *ino)) && changed.insert((*tree, *ino)) {
                missing.push(format!("inode {ino} of subvolume {tree} has other content"));
            }
        }
        for ((tree, directory, name), targets) in &self.names {
            let mut leading = targets.iter().filter(|it| self.files.contains_key(&(*tree, **it)));
            let Some(first) = leading.next() else { continue };
            let now = after.names.get(&(*tree, *directory, *name));
            if !now.is_some_and(|now| now.iter().any(|it| targets.contains(it))) {
                missing.push(format!(
                    "a name of inode {first} in directory {directory} of subvolume {tree} is lost"
                ));
            }
        }
        let others = missing.len().saturating_sub(MOST_NAMED);
        missing.truncate(MOST_NAMED);
        missing.extend((others > 0).then(|| format!("and {others} more")));
        missing
    }

    /// Whether the checksum tree is another one in `after`.
    pub(super) fn has_other_checksums(&self, after: &Self) -> bool {
        self.checksums != after.checksums
    }
}

/// A sector whose checksum is another in `after` than in `before`, except those for which `is_fresh`
/// holds. A sector with two checksums has none that counts.
pub(super) fn changed_checksum(
    before: &Volume,
    after: &Volume,
    is_fresh: impl Fn(u64) -> bool,
) -> Option<u64> {
    let now = checksums(after);
    let size = after.checksum_type().size();
    let sectorsize = u64::from(after.sectorsize());
    let at = |sector: u64| {
        let (start, sums) = now.range(..=sector).next_back()?;
        let number = ((sector - start) / sectorsize) as usize;
        sums.get(number * size..(number + 1) * size)
    };
    let then = checksums(before);
    let mut previous_end = 0;
    let mut next = then.iter().skip(1).map(|(start, _)| *start).chain([u64::MAX]);
    for (start, sums) in &then {
        let end = next.next().unwrap_or(u64::MAX);
        let sectors = (0..).map(|number| start.saturating_add(number * sectorsize));
        for (sector, sum) in sectors.zip(sums.chunks_exact(size)) {
            let is_overlapped = sector >= end || sector < previous_end;
            let is_other = at(sector).is_some_and(|now| now != sum);
            if is_other && !is_overlapped && !is_fresh(sector) {
                return Some(sector);
            }
        }
        let covered = (sums.len() / size) as u64 * sectorsize;
        previous_end = start.saturating_add(covered).max(previous_end);
    }
    None
}

/// The checksums of each item, by the first sector.
fn checksums(volume: &Volume) -> BTreeMap<u64, Vec<u8>> {
    let blocks = Blocks::strict(volume);
    let mut items = BTreeMap::new();
    if let Some(root) = State::read(&blocks).root(CSUM_TREE) {
        each_item(&blocks, CSUM_TREE, root, &mut |key, data| {
            items.insert(key.offset, data.to_vec());
        });
    }
    items
}
