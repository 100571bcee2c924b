//! Every rule, broken.

use larder_format::node::{HEADER_SIZE, KeyPointer};
use larder_format::tree_check::{Context, TreeCheckError, check_node};
use larder_format::{ItemType, Key, Node};
use zerocopy::IntoBytes;

use crate::cases::{Case, cases};
use crate::leaf::{context, header, leaf, superblock};

fn verdict(bytes: &[u8], context: &Context) -> Result<(), TreeCheckError> {
    check_node(Node::parse(bytes).expect("a leaf"), context)
}

fn leaf_of(case: &Case) -> Vec<u8> {
    leaf(header(case.owner), &case.items)
}

#[test]
fn sound_leaves_pass_and_broken_rules_are_named() {
    for case in cases() {
        let found = verdict(&leaf_of(&case), &context());
        match (case.problem, found) {
            (None, found) => assert_eq!(found, Ok(()), "{}", case.name),
            (Some(_), Ok(())) => panic!("{}: not found", case.name),
            (Some(problem), Err(error)) => {
                assert!(error.to_string().contains(problem), "{}: {error}", case.name);
                // The last item is always the wrong one.
                let slot = case.items.len().checked_sub(1);
                assert_eq!((error.slot, error.key), (slot, slot.map(|slot| case.items[slot].0)));
            }
        }
    }
}

#[test]
fn verdicts_depend_on_features() {
    let case = |name: &str| {
        cases().into_iter().find(|case| case.name == name).expect("there is such a case")
    };
    let with = |flags: u64| {
        let mut superblock = superblock();
        superblock.incompat_flags = flags.into();
        Context::new(&superblock)
    };
    let says = |name: &str, flags: u64| {
        verdict(&leaf_of(&case(name)), &with(flags)).err().map(|error| error.problem)
    };
    let skinny = says("sound: tree block", 0).expect("needs the feature");
    assert!(skinny.contains("SKINNY_METADATA"), "{skinny}");
    assert_eq!(says("wrong: without the feature MIXED_GROUPS", 1 << 2), None);
    assert_eq!(says("wrong: without the feature RAID_STRIPE_TREE", 1 << 14), None);
}

#[test]
fn checksums_have_the_length_of_their_algorithm() {
    let item = (Key::new(-10_i64 as u64, ItemType::EXTENT_CSUM, 4096), vec![0; 36]);
    let leaf = leaf(header(7), &[item]);
    let mut superblock = superblock();
    assert!(verdict(&leaf, &Context::new(&superblock)).is_ok());
    superblock.csum_type = 2.into();
    assert!(verdict(&leaf, &Context::new(&superblock)).is_err());
}

#[test]
fn blocks_that_were_never_written_are_refused() {
    let mut header = header(7);
    header.flags = 0.into();
    assert!(verdict(&leaf(header, &[]), &context()).is_err());
}

#[test]
fn children_have_valid_addresses() {
    let node = |child: u64| {
        let mut header = header(7);
        header.level = 1;
        let mut bytes = leaf(header, &[]);
        let pointer =
            KeyPointer { key: Key::MIN.into(), blockptr: child.into(), generation: 1.into() };
        bytes[HEADER_SIZE - 5] = 1; // nritems
        bytes[HEADER_SIZE..][..33].copy_from_slice(pointer.as_bytes());
        verdict(&bytes, &context())
    };
    assert_eq!(node(4096), Ok(()));
    for child in [0, 4097] {
        assert!(node(child).unwrap_err().problem.contains("child's address"));
    }
}
