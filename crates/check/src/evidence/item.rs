//! Evidence of items by themselves.

use larder_format::{FormatError, ItemType, Key};

evidence! {
    /// What is wrong with an item by itself: its place, its key, its size or its content.
    ItemEvidence {
        UnexpectedItem => Unexpected { found: ItemType, tree: &'static str } "{found} in the {tree}";
        UnexpectedItem => UnexpectedOfFiles { found: ItemType } "{found} in a tree of files";
        UnexpectedItem => AmongChecksums "among checksums";
        UnexpectedItem => AmongLogs "in the tree of log trees";
        ItemFormat => Format { problem: FormatError } "{problem}";
        ItemFormat => Len { found: usize, expected: usize } "it has {found} bytes, not {expected}";
        ItemFormat => StripeLen { found: usize } "it has {found} bytes";
        ItemFormat => RootItemLen { found: usize } "a root item of {found} bytes";
        ItemFormat => DeviceStatisticsLen { found: usize } "device statistics of {found} bytes";
        ItemFormat => BitmapLen { found: usize } "a bitmap of {found} bytes";
        ItemFormat => Empty "it is empty";
        ItemFormat => NotDefaultSubvolume "an entry that is not the default subvolume's";
        ItemFormat => ReferenceToItself "a reference of a directory to itself";
        ItemFormat => XattrPointsTo { found: Key } "an extended attribute that points to {found}";
        ItemFormat => Entry { file_type: u8, target: Key, data_bytes: usize }
            "an entry of type {file_type} that points to {target}, with {data_bytes} bytes of data";
        ItemFormat => SeveralEntries "it has more than one entry";
        ItemFormat => BlockGroupChunk { found: u64 } "its chunk_objectid is {found}";
        ItemFormat => DeviceExtentChunk { chunk: u64, tree: u64 }
            "it names the chunk {chunk} of tree {tree}";
        ItemKey => NoInode { objectid: u64 } "{objectid} is no inode";
        ItemKey => Offset { expected: u64 } "its offset should be {expected}";
        ItemKey => OrphanObjectid "an orphan item belongs to objectid -5";
        ItemKey => IndexTooLow { expected: u64 }
            "a listing begins at {expected}, and never shows it";
        ItemKey => ChunkObjectid "a chunk's objectid is 256";
        ItemKey => Device { devid: u64 } "of the device {devid}";
        ItemKey => NotWholeSectors "it does not consist of whole sectors";
        NameHash => NameHash { expected: u64 } "the hash of its name is {expected}";
        EntryName => Name { problem: &'static str } "{problem}";
        EntryName => NameLen { found: usize } "a name of {found} bytes";
        DuplicateName => DuplicateName { name: String } "two entries are called {name:?}";
    }
}
