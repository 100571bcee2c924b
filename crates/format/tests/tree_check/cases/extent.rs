use larder_format::ItemType;
use larder_format::item::{BackRef, ExtentDataRef, ExtentItem, TreeBlockInfo};

use super::{Case, bytes, key, sound, wrong};
use crate::leaf::Item;

const START: u64 = 1 << 24;
const DATA: u64 = 1;
const TREE_BLOCK: u64 = 2;

fn extent(refs: u64, flags: u64, inline: &[BackRef]) -> Vec<u8> {
    let mut data = bytes::<ExtentItem>(|item| {
        item.refs = refs.into();
        item.generation = 1.into();
        item.flags = flags.into();
    });
    for back_ref in inline {
        back_ref.write_inline(&mut data);
    }
    data
}

fn data_item(start: u64, len: u64, data: Vec<u8>) -> Item {
    (key(start, ItemType::EXTENT_ITEM, len), data)
}

fn data(refs: u64, inline: &[BackRef]) -> [Item; 1] {
    [data_item(START, 8192, extent(refs, DATA, inline))]
}

fn block(level: u64, inline: &[BackRef]) -> [Item; 1] {
    block_at(START, level, inline)
}

fn block_at(start: u64, level: u64, inline: &[BackRef]) -> [Item; 1] {
    [(key(start, ItemType::METADATA_ITEM, level), extent(inline.len() as u64, TREE_BLOCK, inline))]
}

/// In the form before skinny metadata.
fn old_block(len: u64, level: u8) -> [Item; 1] {
    let mut data = extent(1, TREE_BLOCK, &[]);
    data.extend(bytes::<TreeBlockInfo>(|info| info.level = level));
    BackRef::TreeBlock { root: 5 }.write_inline(&mut data);
    [data_item(START, len, data)]
}

const FILE: BackRef = BackRef::Data { root: 5, objectid: 257, offset: 0, count: 1 };
const LEAF: BackRef = BackRef::SharedData { parent: 1 << 25, count: 2 };

fn file(root: u64, objectid: u64, offset: u64, count: u32) -> [Item; 1] {
    data(9, &[BackRef::Data { root, objectid, offset, count }])
}

fn leaf(parent: u64, count: u32) -> [Item; 1] {
    data(9, &[BackRef::SharedData { parent, count }])
}

fn keyed(item_type: ItemType, start: u64, offset: u64, data: Vec<u8>) -> [Item; 1] {
    [(key(start, item_type, offset), data)]
}

fn keyed_file(edit: impl FnOnce(&mut ExtentDataRef)) -> Vec<u8> {
    bytes::<ExtentDataRef>(|item| {
        item.root = 5.into();
        item.objectid = 257.into();
        item.count = 1.into();
        edit(item);
    })
}

fn inline_cases() -> Vec<Case> {
    let tree = |root| BackRef::TreeBlock { root };
    let parent = |parent| BackRef::SharedBlock { parent };
    // By hash, the greater first.
    let mut files = [1, 2, 3].map(|objectid| BackRef::Data {
        root: 5,
        objectid: 256 + objectid,
        offset: 0,
        count: 1,
    });
    files.sort_by_key(|back_ref| std::cmp::Reverse(back_ref.sequence()));
    let ascending: Vec<_> = files.iter().rev().copied().collect();
    let cut = extent(1, DATA, &[FILE]);
    let unknown = [extent(1, DATA, &[]), vec![1; 9]].concat();
    vec![
        sound("data", data(1, &[FILE])),
        sound("several files", data(3, &files)),
        sound(
            "file, then leaves",
            data(5, &[FILE, LEAF, BackRef::SharedData { parent: 1 << 24, count: 2 }]),
        ),
        sound("more references than are inline", data(7, &[FILE])),
        sound("no reference", data(0, &[])),
        sound("the same reference twice", data(2, &[FILE, FILE])),
        sound("file of data relocation", file(-9_i64 as u64, 257, 0, 1)),
        sound("v1 cache", file(1, 257, 0, 1)),
        sound("offset before the file", file(5, 257, 0_u64.wrapping_sub(4096), 1)),
        wrong("references EXTENT_DATA_REF do not descend", data(3, &ascending)),
        wrong("a reference EXTENT_DATA_REF after one SHARED_DATA_REF", data(3, &[LEAF, FILE])),
        wrong("1 inline references where 0 are counted", data(0, &[FILE])),
        wrong("a file of tree 2 cannot refer", file(2, 257, 0, 1)),
        wrong("255 is no inode number", file(5, 255, 0, 1)),
        wrong("offset 100 is not a multiple", file(5, 257, 100, 1)),
        wrong("a reference counted 0 times", file(5, 257, 0, 0)),
        wrong("parent 100 is not a multiple", leaf(100, 1)),
        wrong("a reference counted 0 times", leaf(4096, 0)),
        wrong("ExtentDataRef needs 28 bytes but 27", {
            [data_item(START, 8192, cut[..cut.len() - 1].to_vec())]
        }),
        wrong("unknown inline type INODE_ITEM", [data_item(START, 8192, unknown)]),
        sound("block of several trees", block(0, &[tree(300), tree(256), parent(1 << 24)])),
        wrong("references TREE_BLOCK_REF do not descend", block(0, &[tree(256), tree(300)])),
        wrong("parent 512 is not a multiple", block(0, &[parent(512)])),
    ]
}

fn keyed_cases() -> Vec<Case> {
    use ItemType as T;
    let two = [keyed_file(|_| {}), keyed_file(|_| {})].concat();
    vec![
        sound("keyed tree", keyed(T::TREE_BLOCK_REF, START, 5, vec![])),
        sound("keyed parent", keyed(T::SHARED_BLOCK_REF, START, 1 << 25, vec![])),
        sound("keyed leaf", keyed(T::SHARED_DATA_REF, START, 1 << 25, vec![1; 4])),
        sound("keyed file", keyed(T::EXTENT_DATA_REF, START, 9, keyed_file(|_| {}))),
        sound("keyed files", keyed(T::EXTENT_DATA_REF, START, 9, two)),
        wrong("1 bytes where 0 belong", keyed(T::TREE_BLOCK_REF, START, 5, vec![0])),
        wrong("address 100 is not", keyed(T::TREE_BLOCK_REF, 100, 5, vec![])),
        wrong("1 bytes where 0 belong", keyed(T::SHARED_BLOCK_REF, START, 1 << 25, vec![0])),
        wrong("parent 100 is not", keyed(T::SHARED_BLOCK_REF, START, 100, vec![])),
        wrong("5 bytes where 4 belong", keyed(T::SHARED_DATA_REF, START, 1 << 25, vec![1; 5])),
        wrong("parent 100 is not", keyed(T::SHARED_DATA_REF, START, 100, vec![1; 4])),
        wrong("27 bytes are no whole", keyed(T::EXTENT_DATA_REF, START, 9, vec![1; 27])),
        wrong("address 100 is not", keyed(T::EXTENT_DATA_REF, 100, 9, keyed_file(|_| {}))),
        wrong("a file of tree 2", {
            keyed(T::EXTENT_DATA_REF, START, 9, keyed_file(|item| item.root = 2.into()))
        }),
        wrong("5 is no inode number", {
            keyed(T::EXTENT_DATA_REF, START, 9, keyed_file(|item| item.objectid = 5.into()))
        }),
        wrong("offset 7 is not", {
            keyed(T::EXTENT_DATA_REF, START, 9, keyed_file(|item| item.offset = 7.into()))
        }),
        wrong("counted 0 times", {
            keyed(T::EXTENT_DATA_REF, START, 9, keyed_file(|item| item.count = 0.into()))
        }),
    ]
}

fn item_cases() -> Vec<Case> {
    let tree = [BackRef::TreeBlock { root: 5 }];
    let both = |flags| [data_item(START, 8192, extent(1, flags, &[FILE]))];
    let [first] = data(1, &[FILE]);
    let beside = |start| [first.clone(), data_item(start, 4096, extent(1, DATA, &[FILE]))];
    let blocks = |start| [block(0, &tree), block_at(start, 0, &tree)].concat();
    let data_under_metadata = (key(START, ItemType::METADATA_ITEM, 0), extent(1, DATA, &[FILE]));
    vec![
        sound("tree block", block(0, &tree)),
        sound("tree block with an item of the old kind", old_block(16384, 7)),
        sound("neighbours", beside(START + 8192)),
        sound("neighbouring blocks", blocks(START + 16384)),
        sound("block with full back references", {
            [(block(0, &tree)[0].0, extent(1, TREE_BLOCK | 1 << 8, &tree))]
        }),
        wrong("ExtentItem needs 24 bytes but 23", [data_item(START, 8192, vec![0; 23])]),
        wrong("address 16777217 is not", [data_item(START + 1, 8192, extent(1, DATA, &[FILE]))]),
        wrong("flags 0x0 say neither", both(0)),
        wrong("flags 0x3 say neither", both(DATA | TREE_BLOCK)),
        wrong("data with full back references", both(DATA | 1 << 8)),
        wrong("length 8191 is not", [data_item(START, 8191, extent(1, DATA, &[FILE]))]),
        wrong("data as a tree block's item", [data_under_metadata]),
        wrong("a tree block of 4096 bytes", old_block(4096, 0)),
        wrong("level 8 is over 7", old_block(16384, 8)),
        wrong("level 8 is over 7", block(8, &tree)),
        wrong("starts before the one before it ends at 16785408", beside(START + 4096)),
        wrong("starts before the one before it ends at 16793600", blocks(START + 4096)),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    [item_cases(), inline_cases(), keyed_cases()].into_iter().flatten().collect()
}
