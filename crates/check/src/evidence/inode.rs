//! Evidence of inodes and directories.

use larder_format::item::{FileType, InodeFlags};

evidence! {
    /// What is wrong with an inode, or with how names and inodes relate.
    InodeEvidence {
        InodeItem => Mode { found: u32 } "its mode is {found:o}";
        InodeItem => Generations { generation: u64, transid: u64 }
            "made in generation {generation} and changed in {transid}";
        InodeItem => Nanoseconds { found: u32 } "one of its times has {found} nanoseconds";
        InodeItem => UnknownFlags { found: u64 } "it has unknown flags {found:#x}";
        InodeItem => SymlinkFlags { found: InodeFlags } "a symbolic link with the flags {found:?}";
        InodeItem => DirectoryLinks { found: u32 } "a directory with {found} links";
        InodeMissing => NoInode "it has items but no inode";
        LinkCount => Links { found: u32, expected: u32 } "it counts {found} links, has {expected}";
        DirectorySize => DirectorySize { found: u64, expected: u64 }
            "its size is {found}, its entries' names have {expected} bytes";
        DirectoryItems => EntriesDiffer "its entries by hash are not its entries by index";
        EntryDangling => EntryOfNone { index: u64, target: u64 }
            "its entry {index} leads to {target}, which is none";
        EntryDangling => EntryOfSubvolume { index: u64, subvolume: u64 }
            "its entry {index} leads to subvolume {subvolume}";
        EntryType => EntryType { index: u64, target: u64, found: FileType, expected: FileType }
            "its entry {index} says that {target} is {found:?}, it is {expected:?}";
        EntryWithoutReference => NoReference { index: u64, target: u64 }
            "inode {target} does not know that entry {index} names it";
        EntryWithoutReference => InodesDoNotRelate "its inodes do not relate, too";
        ReferenceWithoutEntry => NoEntry { directory: u64, index: u64 }
            "directory {directory} has no such entry {index}";
        OrphanMissing => NoOrphan "it has no names and no orphan item";
        WrongInodeType => EntriesOfNoDirectory "it has directory entries and is no directory";
        WrongInodeType => ExtentsOfNoFile "it has file extents and is no file";
    }
}
