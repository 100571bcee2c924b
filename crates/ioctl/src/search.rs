//! Searching trees, and lookups in them: subvolumes by uuid, and their paths.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::vec;

use larder_format::item::{RootRef, uuid_items, uuid_key};
use larder_format::{ItemType, Key, Uuid, objectid};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::{
    INO_LOOKUP, InoLookupArgs, SearchArgsV2, SearchHeader, SearchKey, TREE_SEARCH_V2,
};
use crate::call;
use crate::invalid::invalid;

/// The most levels of nested subvolumes.
const MOST_NESTED: usize = 1024;

/// An item of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its key.
    pub key: Key,
    /// The transaction that last wrote its leaf.
    pub generation: u64,
    /// Its data.
    pub data: Vec<u8>,
}

/// All items of a tree whose keys lie in `range`, in order. Tree 0 is the subvolume that `inside`
/// lies in.
pub fn items(inside: impl AsFd, tree_id: u64, range: RangeInclusive<Key>) -> io::Result<Vec<Item>> {
    items_since(inside.as_fd(), tree_id, range, 0).collect()
}

/// The items of a tree whose keys lie in `range` and whose leaves the transaction `since` or a
/// later one wrote, in order. Tree 0 is the subvolume that `inside` lies in.
pub fn items_since(
    inside: BorrowedFd<'_>,
    tree_id: u64,
    range: RangeInclusive<Key>,
    since: u64,
) -> Items<'_> {
    let (first, last) = range.into_inner();
    let found = Vec::new().into_iter();
    Items { inside, tree_id, next: Some(first), last, since, found }
}

/// Iterates over items of a tree, as many of them in memory as one answer holds. An error is the
/// last one.
#[derive(Debug)]
pub struct Items<'a> {
    inside: BorrowedFd<'a>,
    tree_id: u64,
    /// Where the next search begins.
    next: Option<Key>,
    last: Key,
    since: u64,
    found: vec::IntoIter<Item>,
}

impl Iterator for Items<'_> {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<io::Result<Item>> {
        if let Some(item) = self.found.next() {
            return Some(Ok(item));
        }
        let first = self.next.take().filter(|first| *first <= self.last)?;
        match some_items(self.inside, self.tree_id, first, self.last, u32::MAX, self.since) {
            Ok(some) => {
                self.next = some.last().and_then(|item| item.key.successor());
                self.found = some.into_iter();
                self.found.next().map(Ok)
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// The first items from `first` to `last`, as many as fit; none if there are none.
fn some_items(
    inside: impl AsFd,
    tree_id: u64,
    first: Key,
    last: Key,
    nr_items: u32,
    since: u64,
) -> io::Result<Vec<Item>> {
    let mut bytes = vec![0; call::most_bytes(&inside)?];
    let key = SearchKey {
        tree_id,
        min_objectid: first.objectid,
        max_objectid: last.objectid,
        min_type: first.item_type.0.into(),
        max_type: last.item_type.0.into(),
        min_offset: first.offset,
        max_offset: last.offset,
        min_transid: since,
        max_transid: u64::MAX,
        nr_items,
        ..SearchKey::new_zeroed()
    };
    let buf_size = (bytes.len() - size_of::<SearchArgsV2>()) as u64;
    let args = SearchArgsV2 { key, buf_size };
    bytes[..size_of_val(&args)].copy_from_slice(args.as_bytes());
    call::with_more::<SearchArgsV2>(
        inside,
        TREE_SEARCH_V2,
        &mut bytes,
        |args| args.buf_size,
        None,
    )?;
    let short = || invalid("an answer that is too short");
    let (args, mut rest) = SearchArgsV2::read_from_prefix(&bytes).map_err(|_| short())?;
    let mut items: Vec<Item> = Vec::new();
    for _ in 0..args.key.nr_items {
        let (header, behind) = SearchHeader::read_from_prefix(rest).map_err(|_| short())?;
        let (data, behind) = behind.split_at_checked(header.len as usize).ok_or_else(short)?;
        let item_type = u8::try_from(header.item_type).map_err(|_| invalid("a type of an item"))?;
        let key = Key::new(header.objectid, ItemType(item_type), header.offset);
        if key < first || key > last || items.last().is_some_and(|before| before.key >= key) {
            return Err(invalid("an item that was not asked for"));
        }
        items.push(Item { key, generation: header.transid, data: data.to_vec() });
        rest = behind;
    }
    Ok(items)
}

/// The first item in a range of keys.
fn first_item(inside: impl AsFd, tree: u64, first: Key, last: Key) -> io::Result<Option<Item>> {
    Ok(some_items(inside, tree, first, last, 1, 0)?.into_iter().next())
}

/// The highest inode number in the subvolume that `inside` lies in.
pub fn last_inode(inside: impl AsFd) -> io::Result<u64> {
    let (mut last, mut end) = (objectid::FIRST_FREE, objectid::LAST_FREE);
    while last < end {
        // Rounded up, so that the interval shrinks each time.
        let middle = last + (end - last).div_ceil(2);
        let first = Key::new(middle, ItemType(0), 0);
        let behind = Key::new(end, ItemType(u8::MAX), u64::MAX);
        match first_item(&inside, 0, first, behind)? {
            Some(item) => last = item.key.objectid,
            None => end = middle - 1,
        }
    }
    Ok(last)
}

/// Ids of the subvolumes with this uuid, or received from one with it, in the file system that
/// `inside` lies in. Reads the uuid tree.
pub fn subvolumes_of(inside: impl AsFd, uuid: Uuid) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for item_type in [ItemType::UUID_KEY_RECEIVED_SUBVOL, ItemType::UUID_KEY_SUBVOL] {
        let key = uuid_key(uuid, item_type);
        if let Some(item) = first_item(&inside, objectid::UUID_TREE, key, key)? {
            let items = uuid_items(&item.data).map_err(|_| invalid("an item of the uuid tree"))?;
            ids.extend(items.iter().map(|id| id.get()));
        }
    }
    Ok(ids)
}

/// The path of a subvolume from the top level, without a slash at either end; none if it has no
/// name.
pub fn subvolume_path(inside: impl AsFd, id: u64) -> io::Result<Option<Vec<u8>>> {
    let mut parts = Vec::new();
    let mut at = id;
    while at != objectid::FS_TREE {
        let key = |parent| Key::new(at, ItemType::ROOT_BACKREF, parent);
        let found = first_item(&inside, objectid::ROOT_TREE, key(0), key(u64::MAX))?;
        let Some(Item { key, data, .. }) = found else { return Ok(None) };
        let named = RootRef::parse(&data).map_err(|_| invalid("a reference of a subvolume"))?;
        if parts.len() >= MOST_NESTED {
            return Err(invalid("subvolumes lie in each other"));
        }
        // It ends with a slash unless it is empty.
        let directory = directory_path(&inside, key.offset, named.dirid)?;
        parts.push([&directory, named.name].concat());
        at = key.offset;
    }
    parts.reverse();
    Ok(Some(parts.join(&b'/')))
}

/// The path of a directory in the subvolume `treeid`, with a slash at its end; empty for the root.
pub fn directory_path(inside: impl AsFd, treeid: u64, objectid: u64) -> io::Result<Vec<u8>> {
    let mut args = InoLookupArgs { treeid, objectid, ..InoLookupArgs::new_zeroed() };
    call::update::<INO_LOOKUP, _>(inside, &mut args)?;
    let len = args.name.iter().position(|byte| *byte == 0).unwrap_or(args.name.len());
    Ok(args.name[..len].to_vec())
}
