//! Evidence of devices, chunks, block groups and free space.

use larder_format::{FormatError, Uuid};

evidence! {
    /// What is wrong with the space of devices, or with how it is handed out.
    SpaceEvidence {
        Chunk => ChunkOwner { found: u64 } "its owner is {found}";
        Chunk => ChunkSectorSize { found: u32 } "its sector_size is {found}";
        Chunk => ChunkInvalid { problem: String } "{problem}";
        Chunk => StripeWithoutDevice { devid: u64, uuid: Uuid }
            "a stripe lies on device {devid} {uuid}, which the chunk tree does not list";
        ChunkWithoutDeviceExtent => NoDeviceExtent { chunk: u64, len_bytes: u64 }
            "{len_bytes} bytes of the chunk at {chunk}";
        DeviceExtentWithoutChunk => NoChunkOfDeviceExtent { chunk: u64, len_bytes: u64 }
            "{len_bytes} bytes for a chunk at {chunk}";
        DeviceExtentOverlap => DeviceExtentOverlaps { previous_end: u64 }
            "the previous one ends at {previous_end}";
        DeviceExtentRange => OutsideOfDevice { len_bytes: u64 } "{len_bytes} bytes";
        DeviceItem => DeviceUse { bytes_used: u64, total_bytes: u64 }
            "{bytes_used} bytes used of {total_bytes}";
        DeviceItem => DeviceLen { found_bytes: u64, expected_bytes: u64 }
            "it has {found_bytes} bytes, not {expected_bytes}";
        DeviceBytesUsed => DeviceBytesUsed { found: u64, expected: u64 }
            "it says {found} bytes, its extents have {expected}";
        ChunkWithoutBlockGroup => NoBlockGroup { len_bytes: u64 } "{len_bytes} bytes";
        BlockGroupWithoutChunk => NoChunk { len_bytes: u64 } "{len_bytes} bytes";
        BlockGroupFlags => BlockGroupFlags { found: u64, expected: u64 }
            "the block group's is {found:#x}, the chunk's {expected:#x}";
        BlockGroupUsed => UsedOf { used_bytes: u64, len_bytes: u64 }
            "{used_bytes} bytes used of {len_bytes}";
        BlockGroupUsed => Used { found: u64, expected: u64 }
            "it says {found}, its extents have {expected}";
        FreeSpaceInfo => FreeSpaceOfNothing "there is no such block group";
        FreeSpaceInfo => NoFreeSpaceInfo "the block group has none";
        FreeSpaceInfo => FreeSpaceFlags { found: u32 } "flags {found:#x}";
        FreeSpaceInfo => FreeSpaceCount { found: u32, expected: usize }
            "it counts {found} extents, has {expected}";
        FreeSpaceTree => FreeSpaceMisfit "it does not fit the block group before it";
        FreeSpaceTree => FreeSpaceDiffers { at: u64 } "it differs from the extent tree at {at}";
        SpaceCache => CacheOfNothing "there is no such block group";
        SpaceCache => CacheWithoutInode { inode: u64 } "its inode {inode} does not exist";
        SpaceCache => CacheDiffers { at: u64 } "it differs from the extent tree at {at}";
        SpaceCache => CacheUnreadable "its file cannot be read";
        SpaceCache => CacheFormat { problem: FormatError } "{problem}";
        SpaceCache => CacheGeneration { found: u64, expected: u64 }
            "generation {found} in the file, {expected} outside";
        SpaceCache => CacheEntryRange "an entry passes all addresses";
        SpaceCache => CacheLacksBitmaps "there are fewer pages than bitmaps";
        SpaceCache => CacheLacksEntries "there are fewer pages than entries";
        SpaceCache => CacheEntryType { found: u8 } "an entry of the unknown type {found}";
        SpaceCache => CacheEntryOutside "an entry lies outside of the block group";
        SpaceCache => CacheEmpty "its file is empty";
        SpaceCache => CacheTooManyPages "it has too many pages";
        SpaceCache => CachePage { number: usize } "page {number} does not match its checksum";
        SpaceCache => CacheLen { found_bytes: u64 } "its file has {found_bytes} bytes";
    }
}
