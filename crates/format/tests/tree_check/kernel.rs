//! Compares verdicts with those of the kernel's own tree checker.
//!
//! Mounting reads the root of every tree. A leaf in place of the root of the checksum tree, which
//! is empty on an empty file system, is read, checked and not used: the mount fails exactly if the
//! checker refuses the leaf. Leaves of the top-level subvolume replace that tree's root, and keep
//! its directory.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use larder_format::node::HEADER_FLAG_WRITTEN;
use larder_format::tree_check::check_node;
use larder_format::{ChecksumType, Header, ItemType, Node, Physical, objectid};
use larder_testkit::command::run;
use larder_testkit::guard::{KernelMount, Scratch};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use zerocopy::FromBytes;

use crate::cases::{Case, Kernel, cases};
use crate::leaf::{Item, context, header, leaf};
use crate::scan::{Found, for_each_block, read_superblock};

/// An empty file system whose root leaves can be exchanged.
struct Victim {
    device: PathBuf,
    checksums: Found,
    top_level: Found,
    _scratch: Scratch,
}

impl Victim {
    fn new() -> Self {
        let scratch = Scratch::new();
        let device = scratch.sparse_file("victim", 128 << 20);
        let arguments = ["--quiet", "--metadata", "single", "--nodesize", "16384"];
        let arguments = arguments.map(AsRef::as_ref).into_iter().chain([device.as_os_str()]);
        run("mkfs.btrfs", arguments).expect("mkfs.btrfs");
        let checksums = root_leaf(&device, objectid::CSUM_TREE);
        let top_level = root_leaf(&device, objectid::FS_TREE);
        Self { device, checksums, top_level, _scratch: scratch }
    }

    /// Whether the kernel mounts the file system with the leaf of `case` in it.
    fn accepts(&self, case: &Case) -> bool {
        let (place, mut items) = match case.owner {
            objectid::FS_TREE => (&self.top_level, self.top_level_items()),
            _ => (&self.checksums, Vec::new()),
        };
        if case.items.is_empty() {
            items.clear();
        }
        items.extend(case.items.iter().cloned());
        let mut header = *place.header();
        header.owner = case.owner.into();
        self.mounts_with(place, leaf(header, &items))
    }

    /// Whether the kernel mounts the file system with another block at this place.
    fn mounts_with(&self, place: &Found, block: Vec<u8>) -> bool {
        self.write(place.offset, block);
        let mounted = KernelMount::try_open(std::slice::from_ref(&self.device), "ro");
        self.write(place.offset, place.bytes.clone());
        mounted.is_ok()
    }

    fn top_level_items(&self) -> Vec<Item> {
        let node = Node::parse(&self.top_level.bytes).expect("a leaf");
        node.iter_items().map(|(key, data)| (key, data.to_vec())).collect()
    }

    fn write(&self, offset: Physical, mut block: Vec<u8>) {
        let checksum = ChecksumType::Crc32c.compute_block(&block).padded();
        Header::mut_from_prefix(&mut block).expect("longer than a header").0.csum = checksum;
        let file = OpenOptions::new().write(true).open(&self.device).expect("the image opens");
        file.write_all_at(&block, offset.0).expect("the image is written");
    }
}

/// The newest block of a tree of one leaf.
fn root_leaf(device: &Path, tree: u64) -> Found {
    let superblock = read_superblock(device);
    let mut newest: Option<Found> = None;
    for_each_block(device, &superblock, |found| {
        let generation = |found: &Found| found.header().generation.get();
        let is_newer = newest.as_ref().is_none_or(|newest| generation(newest) < generation(&found));
        if found.header().owner.get() == tree && is_newer {
            newest = Some(found);
        }
    });
    newest.expect("every file system has the tree")
}

#[test]
fn the_kernel_gives_the_same_verdicts() {
    let victim = Victim::new();
    let mut different = Vec::new();
    for case in cases() {
        let expected = case.problem.is_none() || case.kernel == Kernel::Accepts;
        if victim.accepts(&case) != expected {
            let key = case.items.last().map(|item| item.0);
            different.push(format!("{} {key:?}: accepted is {}", case.name, !expected));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn the_kernel_refuses_blocks_that_were_never_written() {
    let victim = Victim::new();
    let mut header = *victim.checksums.header();
    assert!(victim.mounts_with(&victim.checksums, leaf(header, &[])));
    header.flags = (header.flags.get() & !HEADER_FLAG_WRITTEN).into();
    assert!(!victim.mounts_with(&victim.checksums, leaf(header, &[])));
}

/// A change to a sound leaf, anywhere.
#[derive(Clone, Debug)]
enum Change {
    Objectid(u64),
    Offset(u64),
    Truncate(Index),
    Append(u8),
    Overwrite { at: Index, value: u64, len: usize },
}

impl Change {
    fn any() -> impl Strategy<Value = Self> {
        let edges: [u64; 14] =
            [0, 1, 2, 7, 255, 256, 257, 4096, 8192, 65536, 1 << 31, 1 << 48, !0 << 12, u64::MAX];
        let number = || prop_oneof![3 => select(edges.to_vec()), 1 => any::<u64>()];
        prop_oneof![
            1 => number().prop_map(Self::Objectid),
            1 => number().prop_map(Self::Offset),
            1 => any::<Index>().prop_map(Self::Truncate),
            1 => any::<u8>().prop_map(Self::Append),
            6 => (any::<Index>(), number(), select(vec![1, 2, 4, 8]))
                .prop_map(|(at, value, len)| Self::Overwrite { at, value, len }),
        ]
    }

    /// Changes the last item: the items before it keep the keys in order.
    fn apply(&self, (key, data): &mut Item) {
        match self {
            Self::Objectid(value) => key.objectid = *value,
            Self::Offset(value) => key.offset = *value,
            Self::Truncate(at) => data.truncate(at.index(data.len() + 1)),
            Self::Append(byte) => data.push(*byte),
            Self::Overwrite { at, value, len } if !data.is_empty() => {
                let at = at.index(data.len());
                let len = (*len).min(data.len() - at);
                data[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            }
            Self::Overwrite { .. } => {}
        }
    }
}

/// Whether the kernel has a rule for items of this type, as far as Larder's is stricter.
fn is_checked_by_kernel(item_type: ItemType) -> bool {
    use ItemType as T;
    let not_checked = [
        T::ORPHAN_ITEM,
        T::VERITY_DESC_ITEM,
        T::DIR_LOG_ITEM,
        T::DIR_LOG_INDEX,
        T::DEV_EXTENT,
        T::FREE_SPACE_INFO,
        T::FREE_SPACE_EXTENT,
        T::FREE_SPACE_BITMAP,
        T::QGROUP_STATUS,
        T::QGROUP_INFO,
        T::QGROUP_LIMIT,
        T::QGROUP_RELATION,
        T::UUID_KEY_SUBVOL,
    ];
    !not_checked.contains(&item_type)
}

#[test]
fn everything_that_the_kernel_accepts_is_accepted() {
    let victim = Victim::new();
    let sound: Vec<Case> = cases()
        .into_iter()
        .filter(|case| case.problem.is_none())
        .filter(|case| case.items.last().is_some_and(|item| is_checked_by_kernel(item.0.item_type)))
        .collect();
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let changes = (any::<Index>(), prop::collection::vec(Change::any(), 1..3));
    let outcome = TestRunner::new_with_rng(config, rng).run(&changes, |(base, changes)| {
        let base = base.get(&sound);
        let mut items = base.items.clone();
        let last = items.last_mut().expect("chosen so");
        for change in &changes {
            change.apply(last);
        }
        let bytes = leaf(header(base.owner), &items);
        let Ok(node) = Node::parse(&bytes) else { return Ok(()) };
        if let Err(problem) = check_node(node, &context()) {
            let case = Case { name: String::new(), items, ..*base };
            prop_assert!(!victim.accepts(&case), "{}: {problem}", base.name);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
