//! Evidence of trees as a whole.

use larder_format::Key;

evidence! {
    /// What is wrong with a tree as a whole, or with its root item.
    TreeEvidence {
        TreeIncomplete => UnreadableParts "parts of it could not be read";
        TreeIncomplete => UnknownTrees "trees may be unknown";
        TreeIncomplete => UnknownLogs "logs may be unknown";
        MissingTree => NotListed "the root tree does not list it";
        RootItem => Levels { level: u8, drop_level: u8 }
            "level {level}, deleted to level {drop_level}";
        RootItem => Level { found: u8 } "it has level {found}";
        RootItem => Address { found: u64 } "its root block is at {found}";
        RootItem => Generations { generation: u64, last_snapshot: u64 }
            "generation {generation}, last snapshot {last_snapshot}";
        RootItem => Flags { flags: u64, references: u32 }
            "flags {flags:#x}, {references} references";
        RootItem => InUseAndDeleted { progress: Key } "it is in use, and deleted up to {progress}";
        RootItem => RootDirectory { found: u64 } "its root directory is {found}";
        EntryDangling => DefaultSubvolume { id: u64 } "the default subvolume {id} does not exist";
    }
}
