//! Names: the three items of each made alike.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::item::{FileType, InodeExtref, InodeItem, InodeRef, InodeRefHeader, NAME_MAX};
use larder_format::objectid::FIRST_FREE;
use larder_format::{ItemType, Key, name_hash};
use zerocopy::FromZeros;

use super::tree::{Entry, Inode, Known, Reference, Tree};

/// Where inodes without names go.
const LOST_FOUND: &[u8] = b"lost+found";
/// The first index that a directory gives to a name.
const FIRST_INDEX: u64 = 2;

/// What is told of one name.
#[derive(Debug, Default)]
struct Told {
    by_index: Vec<(u64, Entry)>,
    by_hash: Vec<(Key, Entry)>,
    /// The inode and the index.
    by_inode: Vec<(u64, u64)>,
}

/// A name that stays.
struct Link {
    directory: u64,
    index: Option<u64>,
    entry: Entry,
}

/// Mends the names; subvolumes that are `homeless` get one.
pub(super) fn mend(tree: &mut Tree, homeless: &[u64], known: Known, notes: &mut Vec<String>) {
    drop_distorted(tree);
    restore_inodes(tree, known, notes);
    name_top(tree);
    let told = gather(tree);
    let mut links = Vec::new();
    let mut named_directories = BTreeSet::new();
    for ((directory, _), told) in &told {
        if is_sound(tree, *directory, told) {
            let target = told.by_index[0].1.target;
            if tree.file_type(target.objectid) == Some(FileType::Directory) {
                named_directories.insert(target);
            }
        }
    }
    for ((directory, name), told) in told {
        if is_sound(tree, directory, &told) {
            continue;
        }
        let link = choose(tree, directory, &name, &told);
        forget(tree, directory, &name, &told);
        let mut is_second = |link: &Link| {
            let target = link.entry.target;
            tree.file_type(target.objectid) == Some(FileType::Directory)
                && target.item_type == ItemType::INODE_ITEM
                && !named_directories.insert(target)
        };
        match link {
            None => {
                let name = String::from_utf8_lossy(&name).into_owned();
                notes.push(format!(
                    "directory {directory}: the name {name:?} is dropped: it leads to nothing"
                ));
            }
            Some(link) if is_second(&link) => {
                let name = String::from_utf8_lossy(&name).into_owned();
                notes.push(format!(
                    "directory {directory}: the name {name:?} is dropped: its directory has another"
                ));
            }
            Some(link) => links.push(link),
        }
    }
    for link in links {
        put(tree, link);
    }
    for (ino, directory, name) in std::mem::take(&mut tree.misplaced) {
        write_references(tree, ino, directory, &name);
    }
    adopt(tree, homeless, known, notes);
}

/// Makes inode items for inodes that have items or entries, and none of their own.
fn restore_inodes(tree: &mut Tree, known: Known, notes: &mut Vec<String>) {
    let directories: BTreeSet<u64> = tree
        .by_index
        .keys()
        .map(|(directory, _)| *directory)
        .chain(tree.by_hash.iter().filter(|it| !it.1.is_empty()).map(|it| it.0.objectid))
        .collect();
    for directory in directories {
        tree.inodes.entry(directory).or_default();
    }
    let lost: Vec<u64> =
        tree.inodes.iter().filter(|(_, inode)| inode.item.is_none()).map(|(ino, _)| *ino).collect();
    for ino in lost {
        let file_type = tree.type_by_content(ino);
        let inode = tree.inodes.get_mut(&ino).expect("is there");
        let mut item = InodeItem::new_zeroed();
        item.generation = known.generation.into();
        item.transid = known.generation.into();
        item.mode = match file_type {
            FileType::Directory => 0o040_700,
            FileType::Symlink => 0o120_777,
            _ => 0o100_600,
        }
        .into();
        item.size = inode.inline_bytes.unwrap_or(inode.written_end).into();
        (inode.item, inode.is_made) = (Some(item), true);
        notes.push(format!(
            "inode {ino} is made again, for root only: its owner, mode and times are lost"
        ));
    }
}

/// The top directory is its own parent, with the name `..`.
fn name_top(tree: &mut Tree) {
    let Some(top) = tree.inodes.get_mut(&FIRST_FREE) else { return };
    let right = Reference { directory: FIRST_FREE, index: 0, name: b"..".to_vec() };
    let is_own = |it: &&Reference| it.directory == FIRST_FREE;
    if !top.references.iter().filter(is_own).eq([&right]) {
        let mut data = Vec::new();
        InodeRef { index: 0, name: b".." }.write(&mut data);
        let key = Key::new(FIRST_FREE, ItemType::INODE_REF, FIRST_FREE);
        tree.edits.insert(key, Some(data));
        top.references = vec![right];
    }
}

fn gather(tree: &Tree) -> BTreeMap<(u64, Vec<u8>), Told> {
    let mut told: BTreeMap<(u64, Vec<u8>), Told> = BTreeMap::new();
    for ((directory, index), entry) in &tree.by_index {
        let told = told.entry((*directory, entry.name.clone())).or_default();
        told.by_index.push((*index, entry.clone()));
    }
    for (key, entries) in &tree.by_hash {
        for entry in entries {
            let told = told.entry((key.objectid, entry.name.clone())).or_default();
            told.by_hash.push((*key, entry.clone()));
        }
    }
    for (ino, inode) in &tree.inodes {
        for Reference { directory, index, name } in &inode.references {
            if directory != ino {
                let told = told.entry((*directory, name.clone())).or_default();
                told.by_inode.push((*ino, *index));
            }
        }
    }
    // What a directory that is being deleted has is going, too.
    told.retain(|(directory, _), _| !is_going(tree, *directory));
    told
}

/// Takes names away of which only one of three items tells, if it is the one that another name of
/// the same inode lacks: its name is distorted, or its directory, which does not exist then.
fn drop_distorted(tree: &mut Tree) {
    let told = gather(tree);
    let is_single = |it: &Told| it.by_index.len() + it.by_hash.len() + it.by_inode.len() == 1;
    let target = |it: &Told| match (&it.by_index[..], &it.by_hash[..], &it.by_inode[..]) {
        ([(_, entry)], ..) | (_, [(_, entry)], _) => entry.target.objectid,
        (.., [(ino, _)]) => *ino,
        _ => 0,
    };
    let is_lacking = |it: &Told, single: &Told| {
        let counts = [it.by_index.len(), it.by_hash.len(), it.by_inode.len()];
        let own = [single.by_index.len(), single.by_hash.len(), single.by_inode.len()];
        counts.iter().zip(own).all(|(count, own)| *count == 1 - own)
    };
    let mut by_target: BTreeMap<u64, Vec<&(u64, Vec<u8>)>> = BTreeMap::new();
    for (names, it) in &told {
        by_target.entry(target(it)).or_default().push(names);
    }
    let exists = |ino: &u64| tree.inodes.get(ino).is_some_and(|inode| inode.item.is_some());
    let mut distorted: Vec<(u64, Vec<u8>)> = Vec::new();
    for (names, single) in told.iter().filter(|(_, it)| is_single(it)) {
        let (directory, name) = names;
        let is_it = |other: &&(u64, Vec<u8>)| {
            let is_near = other.0 == *directory || (!exists(directory) && other.1 == *name);
            is_near && is_lacking(&told[*other], single)
        };
        if by_target.get(&target(single)).into_iter().flatten().copied().any(|it| is_it(&it)) {
            distorted.push(names.clone());
        }
    }
    for names in distorted {
        forget(tree, names.0, &names.1, &told[&names]);
    }
}

fn is_going(tree: &Tree, ino: u64) -> bool {
    let links = tree.inodes.get(&ino).and_then(|inode| inode.item).map(|item| item.nlink.get());
    tree.orphans.contains(&ino) && links == Some(0)
}

/// Whether all that tells a name agrees.
fn is_sound(tree: &Tree, directory: u64, told: &Told) -> bool {
    let ([(index, by_index)], [(key, by_hash)]) = (&told.by_index[..], &told.by_hash[..]) else {
        return false;
    };
    let target = by_index.target;
    let is_alike = by_index == by_hash && *key == by_index.hash_key(directory);
    let is_named = match target.item_type {
        ItemType::ROOT_ITEM => told.by_inode.is_empty(),
        _ => told.by_inode == [(target.objectid, *index)],
    };
    is_alike
        && is_named
        && *index >= FIRST_INDEX
        && is_name(&by_index.name)
        && tree.file_type(directory) == Some(FileType::Directory)
        && ((target.item_type == ItemType::ROOT_ITEM && is_subvolume(tree, &target))
            || tree.file_type(target.objectid).map(|it| it as u8) == Some(by_index.file_type))
}

/// Whether a file can have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && !name.contains(&0)
        && !name.contains(&b'/')
        && name != b"."
        && name != b".."
}

fn is_subvolume(tree: &Tree, target: &Key) -> bool {
    tree.is_snapshot || tree.subvolumes.contains(&target.objectid)
}

/// Where a name leads, if that is there: where most of what tells it says.
fn choose(tree: &Tree, directory: u64, name: &[u8], told: &Told) -> Option<Link> {
    let entries = || {
        let by_index = told.by_index.iter().map(|(_, entry)| entry);
        by_index.chain(told.by_hash.iter().map(|(_, entry)| entry))
    };
    let inode = |ino: u64| Key::new(ino, ItemType::INODE_ITEM, 0);
    let mut votes: BTreeMap<Key, usize> = BTreeMap::new();
    for target in entries().map(|entry| entry.target) {
        *votes.entry(target).or_default() += 2;
    }
    for (ino, _) in &told.by_inode {
        *votes.entry(inode(*ino)).or_default() += 3;
    }
    for (target, count) in &mut votes {
        *count += usize::from(tree.subvolumes.contains(&target.objectid));
    }
    let exists = |target: &Key| match target.item_type {
        ItemType::INODE_ITEM => target.offset == 0 && tree.inodes.contains_key(&target.objectid),
        ItemType::ROOT_ITEM => is_subvolume(tree, target),
        _ => false,
    };
    let best = votes.iter().filter(|(target, _)| exists(target)).max_by_key(|(_, count)| **count);
    let target = *best?.0;
    let file_type = match target.item_type {
        ItemType::ROOT_ITEM => FileType::Directory,
        _ => tree.file_type(target.objectid)?,
    };
    let index = told.by_index.iter().find(|(_, entry)| entry.target == target).map(|it| it.0);
    let by_inode = || told.by_inode.iter().find(|it| inode(it.0) == target).map(|it| it.1);
    let index = by_inode()
        .filter(|own| told.by_index.iter().any(|(index, _)| index == own))
        .or(index)
        .or_else(by_inode)
        .or(told.by_index.first().map(|it| it.0))
        .filter(|index| *index >= FIRST_INDEX);
    let transid = entries().map(|entry| entry.transid).next().unwrap_or(1);
    let name =
        if is_name(name) { name.to_vec() } else { format!("ino-{}", target.objectid).into_bytes() };
    tree.inodes.get(&directory)?;
    Some(Link {
        directory,
        index,
        entry: Entry { target, transid, file_type: file_type as u8, name },
    })
}

/// Removes all that tells a name.
fn forget(tree: &mut Tree, directory: u64, name: &[u8], told: &Told) {
    for (index, _) in &told.by_index {
        tree.by_index.remove(&(directory, *index));
        tree.edits.insert(Key::new(directory, ItemType::DIR_INDEX, *index), None);
    }
    for (key, _) in &told.by_hash {
        if let Some(entries) = tree.by_hash.get_mut(key) {
            entries.retain(|entry| entry.name != name);
        }
        write_hash(tree, *key);
    }
    for (ino, _) in &told.by_inode {
        let inode = tree.inodes.get_mut(ino).expect("it tells the name");
        inode.references.retain(|it| !(it.directory == directory && it.name == name));
        write_references(tree, *ino, directory, name);
    }
}

/// Adds a name in all three places.
fn put(tree: &mut Tree, link: Link) {
    let Link { directory, index, entry } = link;
    let last = tree.by_index.range((directory, 0)..=(directory, u64::MAX)).next_back();
    let next = last.map_or(FIRST_INDEX, |((_, index), _)| index.saturating_add(1));
    let is_free = |index: &u64| !tree.by_index.contains_key(&(directory, *index));
    let index = index.filter(is_free).unwrap_or(next.max(FIRST_INDEX));
    let mut data = Vec::new();
    entry.write(&mut data);
    tree.edits.insert(Key::new(directory, ItemType::DIR_INDEX, index), Some(data));
    tree.by_index.insert((directory, index), entry.clone());
    let key = entry.hash_key(directory);
    tree.by_hash.entry(key).or_default().push(entry.clone());
    write_hash(tree, key);
    if entry.target.item_type == ItemType::INODE_ITEM {
        let ino = entry.target.objectid;
        let room = tree.item_bytes;
        let inode = tree.inodes.get_mut(&ino).expect("it exists");
        inode.references.push(Reference { directory, index, name: entry.name.clone() });
        if plain_bytes(inode, directory) > room {
            inode.extended.insert(entry.name.clone());
        }
        write_references(tree, ino, directory, &entry.name);
    }
}

/// Bytes of the references of an inode in a directory that are in the plain form.
fn plain_bytes(inode: &Inode, directory: u64) -> usize {
    let is_plain =
        |it: &&Reference| it.directory == directory && !inode.extended.contains(&it.name);
    let plain = inode.references.iter().filter(is_plain);
    plain.map(|it| size_of::<InodeRefHeader>() + it.name.len()).sum()
}

fn write_hash(tree: &mut Tree, key: Key) {
    let mut data = Vec::new();
    tree.by_hash.get(&key).into_iter().flatten().for_each(|entry| entry.write(&mut data));
    tree.edits.insert(key, (!data.is_empty()).then_some(data));
}

/// Writes the references of an inode in a directory: in the extended form those that have it.
fn write_references(tree: &mut Tree, ino: u64, directory: u64, name: &[u8]) {
    let Some(inode) = tree.inodes.get(&ino) else { return };
    let own = inode.references.iter().filter(|it| it.directory == directory);
    let (extended, plain): (Vec<&Reference>, Vec<&Reference>) =
        own.partition(|it| inode.extended.contains(&it.name));
    let mut data = Vec::new();
    for it in &plain {
        InodeRef { index: it.index, name: &it.name }.write(&mut data);
    }
    let key = Key::new(ino, ItemType::INODE_REF, directory);
    let mut changed = vec![(key, data)];
    if inode.extended.contains(name) {
        let hash = name_hash::extended_ref(directory, name);
        let mut data = Vec::new();
        for it in extended.iter().filter(|it| name_hash::extended_ref(directory, &it.name) == hash)
        {
            let Reference { directory, index, name } = it;
            InodeExtref { parent: *directory, index: *index, name }.write(&mut data);
        }
        changed.push((Key::new(ino, ItemType::INODE_EXTREF, hash), data));
    }
    for (key, data) in changed {
        tree.edits.insert(key, (!data.is_empty()).then_some(data));
    }
}

/// Gives subvolumes and inodes without names one in `lost+found`, except inodes that are being
/// deleted.
fn adopt(tree: &mut Tree, subvolumes: &[u64], known: Known, notes: &mut Vec<String>) {
    let is_homeless = |ino: u64| {
        let inode = &tree.inodes[&ino];
        ino != FIRST_FREE
            && !is_going(tree, ino)
            && !inode.references.iter().any(|it| it.directory != ino)
    };
    let homeless: Vec<u64> = tree.inodes.keys().copied().filter(|ino| is_homeless(*ino)).collect();
    let links = |tree: &Tree, ino: u64| tree.inodes[&ino].item.map_or(1, |item| item.nlink.get());
    let mut adopted = Vec::new();
    for ino in homeless {
        let inode = &tree.inodes[&ino];
        let has_entries = tree.by_index.range((ino, 0)..=(ino, u64::MAX)).next().is_some();
        if links(tree, ino) == 0 && !inode.has_extents && !inode.is_made && !has_entries {
            tree.orphans.insert(ino);
            let key = Key::new(larder_format::objectid::ORPHAN, ItemType::ORPHAN_ITEM, ino);
            tree.edits.insert(key, Some(Vec::new()));
        } else {
            adopted.push(ino);
        }
    }
    if (adopted.is_empty() && subvolumes.is_empty()) || !tree.inodes.contains_key(&FIRST_FREE) {
        return;
    }
    let home = lost_found(tree, known);
    for ino in adopted {
        let Some(file_type) = tree.file_type(ino) else { continue };
        let name = format!("ino-{ino}").into_bytes();
        let target = Key::new(ino, ItemType::INODE_ITEM, 0);
        let (transid, file_type) = (known.generation, file_type as u8);
        let entry = Entry { target, transid, file_type, name };
        put(tree, Link { directory: home, index: None, entry });
        notes.push(format!("inode {ino} has no name: it is in lost+found as ino-{ino}"));
    }
    for subvolume in subvolumes {
        let name = format!("subvolume-{subvolume}").into_bytes();
        let target = Key::new(*subvolume, ItemType::ROOT_ITEM, u64::MAX);
        let (transid, file_type) = (known.generation, FileType::Directory as u8);
        let entry = Entry { target, transid, file_type, name };
        put(tree, Link { directory: home, index: None, entry });
        let place = format!("it is in lost+found as subvolume-{subvolume}");
        notes.push(format!("subvolume {subvolume} has no name: {place}"));
    }
}

/// The directory `lost+found` of the subvolume, made if there is none.
fn lost_found(tree: &mut Tree, known: Known) -> u64 {
    let named = |name: &[u8]| {
        let mut entries = tree.by_index.range((FIRST_FREE, 0)..=(FIRST_FREE, u64::MAX));
        entries.find(|(_, entry)| entry.name == name).map(|(_, entry)| entry.target)
    };
    let mut name = LOST_FOUND.to_vec();
    while let Some(target) = named(&name) {
        let is_directory = target.item_type == ItemType::INODE_ITEM
            && tree.file_type(target.objectid) == Some(FileType::Directory);
        if is_directory {
            return target.objectid;
        }
        name.push(b'_');
    }
    let ino = tree.inodes.keys().next_back().map_or(FIRST_FREE + 1, |last| last + 1);
    let mut item = InodeItem::new_zeroed();
    (item.generation, item.transid) = (known.generation.into(), known.generation.into());
    item.mode = 0o040_700.into();
    let inode = tree.inodes.entry(ino).or_default();
    (inode.item, inode.is_made) = (Some(item), true);
    let target = Key::new(ino, ItemType::INODE_ITEM, 0);
    let file_type = FileType::Directory as u8;
    let entry = Entry { target, transid: known.generation, file_type, name };
    put(tree, Link { directory: FIRST_FREE, index: None, entry });
    ino
}
