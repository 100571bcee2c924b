//! Evidence of superblocks.

use larder_format::{FormatError, Uuid};

evidence! {
    /// What is wrong with a superblock, or with a device by its superblocks.
    SuperblockEvidence {
        MissingDevice => DeviceMissing "its content cannot be checked";
        SuperblockBad => Unreadable { problem: String } "{problem}";
        SuperblockBad => Invalid { problem: FormatError } "{problem}";
        SuperblocksDisagree => Differs "it differs from the others of its generation";
        SuperblocksDisagree => Old { found_generation: u64, newest_generation: u64 }
            "it is of generation {found_generation}, the newest on the device is {newest_generation}";
        SuperblocksDisagree => OtherFileSystem "it describes another file system than the newest";
        DeviceOutOfDate => Behind { found_generation: u64, newest_generation: u64 }
            "it has the commits up to {found_generation}, the newest is {newest_generation}";
        DeviceOutOfDate => LacksLastCommit { newest_generation: u64 }
            "it lacks the last commit, {newest_generation}";
        DeviceItem => DeviceItemDiffers
            "its item in the chunk tree differs from that in the superblock";
        DeviceItem => DeviceNumbers {
            found_devid: u64, found_bytes_used: u64, found_total_bytes: u64,
            listed_devid: u64, listed_bytes_used: u64, listed_total_bytes: u64
        } "the superblock says device {found_devid} with {found_bytes_used} of {found_total_bytes} \
           bytes used, the chunk tree {listed_devid}, {listed_bytes_used}, {listed_total_bytes}";
        SuperblockField => NotedDamage "the kernel noted that the file system is damaged";
        SuperblockField => Flags { found: u64 } "flags are {found:#x}";
        SuperblockField => Sizes { leafsize: u32, stripesize: u32 }
            "leafsize is {leafsize} and stripesize {stripesize}";
        SuperblockField => RootDirectory { found: u64 } "root_dir_objectid is {found}";
        SuperblockField => ChunkRootGeneration { generation: u64, found: u64 }
            "generation {generation}, chunk tree {found}";
        SuperblockField => DeviceFsid { found: Uuid } "its device belongs to {found}";
        SuperblockField => LabelWithoutEnd "its label has no end";
        SuperblockField => UuidTreeGeneration { generation: u64, found: u64 }
            "generation {generation}, uuid tree {found}";
        SuperblockField => NoMixedBackrefs "the MIXED_BACKREF feature is off";
        SuperblockField => LogLevel { found: u8 } "its log tree has level {found}";
        BackupRoot => Backup { number: usize, generation: u64, root: u64 }
            "backup {number} of generation {generation} has the root tree at {root}";
        SuperblockTotals => Totals {
            found_devices: u64, found_bytes: u64, expected_devices: u64, expected_bytes: u64
        } "{found_devices} devices with {found_bytes} bytes, the chunk tree has {expected_devices} \
           with {expected_bytes}";
        SystemChunkArray => SystemChunkInvalid { problem: FormatError } "{problem}";
        SystemChunkArray => SystemChunkDiffers "it differs from the chunk tree's item";
        SystemChunkArray => SystemChunkUnknown "the chunk tree has no such system chunk";
        SystemChunkArray => SystemChunkLacking "it lacks this system chunk";
        SuperblockBytesUsed => BytesUsed { found: u64, expected: u64 }
            "it says {found}, block groups have {expected}";
    }
}
