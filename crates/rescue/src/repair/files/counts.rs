//! What inode items say, made to agree with what their inodes have.

use larder_format::item::{FileExtentItem, FileExtentKind, FileType, InodeFlags, InodeItem};
use larder_format::objectid::FIRST_FREE;
use larder_format::{ItemType, Key};
use zerocopy::{FromZeros, IntoBytes};

use super::tree::{Inode, Known, Tree};

/// In a second.
const NANOSECONDS: u32 = 1_000_000_000;
/// The flags that may be set.
const POSSIBLE_FLAGS: u64 = (1 << 32) | 0xfff | InodeFlags::ROOT_ITEM_INIT.bits();

pub(super) fn mend(tree: &mut Tree, known: Known, notes: &mut Vec<String>) {
    let numbers: Vec<u64> = tree.inodes.keys().copied().collect();
    for ino in numbers {
        let Some(file_type) = tree.file_type(ino) else { continue };
        if file_type != FileType::Directory {
            drop_entries(tree, ino, notes);
        }
        if !matches!(file_type, FileType::Regular | FileType::Symlink) {
            // A hole is no content.
            for start in tree.inodes[&ino].holes.clone() {
                tree.edits.insert(Key::new(ino, ItemType::EXTENT_DATA, start), None);
            }
        }
        let names: u64 = tree
            .by_index
            .range((ino, 0)..=(ino, u64::MAX))
            .map(|(_, entry)| 2 * entry.name.len() as u64)
            .sum();
        let inode = &tree.inodes[&ino];
        let mut item = inode.item.expect("it has a type");
        let old = item;
        fields(&mut item, file_type, known);
        item.nlink = links(tree, ino, file_type).into();
        match file_type {
            FileType::Directory => item.size = names.into(),
            FileType::Symlink => symlink(&mut item, inode),
            FileType::Regular => size(&mut item, inode, known),
            _ => {}
        }
        if matches!(file_type, FileType::Regular | FileType::Symlink) {
            item.nbytes = inode.covered_bytes.into();
        }
        let key = Key::new(ino, ItemType::INODE_ITEM, 0);
        let is_new = tree.edits.get(&key).is_some_and(Option::is_some);
        if item != old || is_new || inode.is_made {
            tree.edits.insert(key, Some(item.as_bytes().to_vec()));
        }
        if file_type == FileType::Regular && !known.has_no_holes {
            fill_gaps(tree, ino, item.size.get(), known);
        }
    }
}

fn fields(item: &mut InodeItem, file_type: FileType, known: Known) {
    let mode = item.mode.get();
    if FileType::from_mode(mode).is_none() || mode > 0o177_777 {
        let kind: u32 = match file_type {
            FileType::Directory => 0o040_000,
            FileType::Symlink => 0o120_000,
            FileType::CharDevice => 0o020_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Fifo => 0o010_000,
            FileType::Socket => 0o140_000,
            _ => 0o100_000,
        };
        item.mode = (kind | (mode & 0o7777)).into();
    }
    let latest = known.generation;
    if item.generation.get() > latest + 1 {
        item.generation = latest.into();
    }
    if item.transid.get() > latest + 1 {
        item.transid = latest.into();
    }
    for time in [&mut item.atime, &mut item.ctime, &mut item.mtime, &mut item.otime] {
        if time.nsec.get() >= NANOSECONDS {
            time.nsec = 0.into();
        }
    }
    let mut flags = item.flags.get() & POSSIBLE_FLAGS;
    if file_type == FileType::Symlink {
        flags &= !(InodeFlags::IMMUTABLE | InodeFlags::APPEND).bits();
    }
    item.flags = flags.into();
}

fn links(tree: &Tree, ino: u64, file_type: FileType) -> u32 {
    if ino == FIRST_FREE {
        return 1;
    }
    let names = tree.inodes[&ino].references.iter().filter(|it| it.directory != ino).count();
    match (file_type, names) {
        (_, 0) if tree.orphans.contains(&ino) => 0,
        (FileType::Directory, _) => 1,
        (_, names) => names as u32,
    }
}

fn symlink(item: &mut InodeItem, inode: &Inode) {
    let Some(stored) = inode.inline_bytes.filter(|_| inode.covered.len() == 1) else { return };
    let size = item.size.get();
    if stored != size && stored.checked_sub(1) != Some(size) {
        item.size = stored.into();
    }
}

/// A size that data goes beyond was not written down: the data counts.
fn size(item: &mut InodeItem, inode: &Inode, known: Known) {
    let end = item.size.get().checked_next_multiple_of(known.sectorsize);
    if known.has_no_holes && end.is_some_and(|end| end < inode.written_end) {
        item.size = inode.written_end.into();
    }
}

/// Without the no-holes feature, puts holes where a file has no extents.
fn fill_gaps(tree: &mut Tree, ino: u64, size: u64, known: Known) {
    let mut covered = tree.inodes[&ino].covered.clone();
    covered.sort_unstable();
    let Some(end) = size.checked_next_multiple_of(known.sectorsize) else { return };
    let mut at = 0;
    for (start, stop) in covered.into_iter().chain([(end, end)]) {
        let start = start.min(end);
        if at < start {
            let mut hole = FileExtentItem::new_zeroed();
            hole.header.generation = known.generation.into();
            hole.header.kind = FileExtentKind::Regular as u8;
            hole.header.ram_bytes = (start - at).into();
            hole.extent.num_bytes = (start - at).into();
            let key = Key::new(ino, ItemType::EXTENT_DATA, at);
            tree.edits.insert(key, Some(hole.as_bytes().to_vec()));
        }
        let stop = stop.checked_next_multiple_of(known.sectorsize).unwrap_or(u64::MAX);
        at = at.max(stop);
    }
}

/// Drops entries of an inode that is no directory, if none leads anywhere.
fn drop_entries(tree: &mut Tree, ino: u64, notes: &mut Vec<String>) {
    let indexes: Vec<u64> =
        tree.by_index.range((ino, 0)..=(ino, u64::MAX)).map(|((_, index), _)| *index).collect();
    for index in indexes {
        tree.by_index.remove(&(ino, index));
        tree.edits.insert(Key::new(ino, ItemType::DIR_INDEX, index), None);
        notes.push(format!("inode {ino}: entry {index} is dropped: it is no directory"));
    }
    let keys: Vec<Key> = tree
        .by_hash
        .range(Key::new(ino, ItemType::DIR_ITEM, 0)..=Key::new(ino, ItemType::DIR_ITEM, u64::MAX))
        .map(|(key, _)| *key)
        .collect();
    for key in keys {
        tree.by_hash.remove(&key);
        tree.edits.insert(key, None);
    }
}
