//! Evidence of extents and references to them.

use larder_format::item::BackRef;

evidence! {
    /// What is wrong with an extent, or with references to it.
    ExtentEvidence {
        ExtentItem => Unaligned "it does not start at a sector";
        ExtentItem => SkinnyWithoutFeature "a METADATA_ITEM without that feature";
        ExtentItem => Level { found: u64 } "level {found}";
        ExtentItem => Len { found_bytes: u64 } "a length of {found_bytes} bytes";
        ExtentItem => Flags { found: u64 } "flags {found:#x}";
        ExtentItem => DataWithTreeFields "it is data and has fields of tree blocks";
        ExtentItem => BlockLen { found_bytes: u64 } "a tree block of {found_bytes} bytes";
        ExtentItem => Generation { found: u64 } "generation {found}";
        ExtentItem => NoReferences "no references";
        ExtentItem => InlineOrder "its inline references are out of order";
        ExtentItem => ReferenceOfOtherKind { found: BackRef }
            "a reference {found:?} of another kind of extent";
        ExtentItem => OwnerWithoutSimpleQuotas "an owner reference without simple quotas";
        ExtentItem => ReferenceOfNone "a reference that counts 0";
        ExtentOverlap => Overlap { previous_end: u64 } "the extent before it ends at {previous_end}";
        ExtentOutsideBlockGroup => OutsideOfChunks { len_bytes: u64 }
            "{len_bytes} bytes lie outside of all chunks";
        ExtentOutsideBlockGroup => InGroupOf { found: &'static str } "it lies in a group of {found}";
        ExtentOnSuperblock => OnSuperblock { start: u64, len_bytes: u64 }
            "the {len_bytes} bytes at {start} must stay free";
        ExtentReferenceCount => ReferenceCount { found: u64, expected: u64 }
            "it counts {found} references and has {expected}";
        ExtentMissing => NoExtentAt { start: u64 } "no extent starts at {start}";
        ExtentMissing => NoExtentOfBlock "a tree block has no extent";
        ExtentUnreferenced => Unreferenced "nothing refers to it";
        BackReferenceMissing => NotKnown { reference: BackRef, expected: u64 }
            "{} refers to it {expected} times", Described(reference);
        BackReferenceDangling => NotMade { reference: BackRef }
            "{} does not refer to it", Described(reference);
        BackReferenceDangling => OfNoExtent "a back reference of an extent that does not exist";
        BackReferenceCount => Count { reference: BackRef, found: u64, expected: u64 }
            "{} refers to it {expected} times, not {found}", Described(reference);
        BackReferenceCount => MoreDiffer { count: u64 } "references of {count} more extents differ";
        ExtentMismatch => OfData { start: u64, found_bytes: u64, listed_bytes: u64, is_data: bool }
            "it says {found_bytes} bytes of data at {start}, the extent tree {listed_bytes} bytes{}",
            if *is_data { "" } else { " of no data" };
        ExtentMismatch => OfBlock {
            level: u8, generation: u64, listed_level: u8, listed_generation: u64, is_block: bool
        } "a block of level {level} and generation {generation}, the extent tree says {listed_level} \
           and {listed_generation}{}", if *is_block { "" } else { ", and no tree block" };
    }
}

/// A back reference in words.
struct Described<'a>(&'a BackRef);

impl std::fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self.0 {
            BackRef::TreeBlock { root } | BackRef::Owner { root } => {
                write!(f, "tree {}", root as i64)
            }
            BackRef::SharedBlock { parent } => write!(f, "the block at {parent}"),
            BackRef::SharedData { parent, .. } => write!(f, "the leaf at {parent}"),
            BackRef::Data { root, objectid, offset, .. } => {
                write!(f, "tree {} inode {objectid} offset {}", root as i64, offset as i64)
            }
        }
    }
}
