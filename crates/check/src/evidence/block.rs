//! Evidence of tree blocks.

use larder_format::tree_check::TreeCheckError;
use larder_format::{Checksum, FormatError, Key, Uuid};

evidence! {
    /// What is wrong with a tree block, or with a pointer to one.
    BlockEvidence {
        BlockCopyBad => Copy { copy: usize, problem: Box<BlockEvidence> } "copy {copy}: {problem}";
        problem.kind() => Under { parent: u64, problem: Box<BlockEvidence> }
            "under {parent}: {problem}";
        BlockUnreadable => Unreadable { problem: String } "{problem}";
        BlockUnreadable => NoDevice "every device that holds it is missing";
        BlockUnreadable => Short "a tree block is shorter than its header";
        BlockUnreadable => Checksum { expected: Checksum }
            "its checksum does not match, computed {expected}";
        BlockAddress => OutsideOfChunks "a pointer leads outside of all chunks";
        BlockAddress => Address { found: u64 } "its header says that it lies at {found}";
        BlockLevel => Level { found: u8, expected: u8 } "it has level {found} and not {expected}";
        BlockLevel => Levels { found: u8, expected: u8 }
            "it is met at level {found} and at {expected}";
        BlockLevel => OtherLevel { found: u8 } "it is met at level {found}, too";
        BlockStructure => Structure { problem: FormatError } "{problem}";
        BlockRefused => Refused { problem: TreeCheckError } "{problem}";
        BlockGeneration => Generation { found: u64, expected: u64 }
            "it has generation {found}, not {expected}";
        BlockGeneration => Generations { found: u64, expected: u64 }
            "pointers to it say generation {found} and {expected}";
        BlockGeneration => OtherGeneration { found: u64 } "it is met with generation {found}, too";
        BlockFsid => Fsid { found: Uuid } "it belongs to the file system {found}";
        BlockOwner => Owner { found: u64 } "its owner is tree {}", *found as i64;
        BlockOwner => Trees { found: u64, expected: u64 }
            "trees {found} and {expected} both reach it";
        BlockOwner => OwnerLacksIt { owner: u64 }
            "its owner, tree {}, does not refer to it", *owner as i64;
        BlockFlags => Flags { found: u64 } "its flags are {found:#x}";
        BlockEmpty => Empty "it has no items";
        BlockFirstKey => FirstKey { found: Key, expected: Key }
            "it starts at {found}, not at {expected}";
        BlockKeyRange => KeyRange { last: Key, next: Key }
            "its keys reach {last}, the next block's {next}";
    }
}
