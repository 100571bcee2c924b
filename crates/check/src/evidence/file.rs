//! Evidence of the content of files.

use larder_format::compression::CompressionError;

evidence! {
    /// What is wrong with the content of a file.
    FileEvidence {
        FileExtent => Encoding { compression: u8, encryption: u8, other_encoding: u16 }
            "compression {compression}, encryption {encryption}, encoding {other_encoding}";
        FileExtent => Generation { found: u64 } "it was made in generation {found}";
        FileExtent => Unaligned "it does not consist of whole sectors";
        FileExtent => Len "its length is invalid";
        FileExtent => PreallocatedAndCompressed "it is preallocated and compressed";
        FileExtent => PastExtent "it passes the end of its extent";
        FileExtent => PastData "it passes the end of its extent's data";
        FileExtent => HoldsTooMuch "its compressed extent holds too much";
        FileExtent => OfSpaceCache "a file of the space cache has only regular extents";
        InlineExtent => InlineNotFirst "it does not start the file";
        InlineExtent => InlineLen { ram_bytes: u64, data_bytes: usize }
            "{ram_bytes} bytes of a file in {data_bytes} bytes of data";
        CompressedData => Compressed { algorithm: &'static str, problem: CompressionError }
            "{algorithm}: {problem}";
        FileExtentOverlap => Overlap { start: u64, previous_end: u64 }
            "the extent at {start} starts before the previous one ends at {previous_end}";
        FileExtentGap => Gap { size: u64, at: u64 } "of its {size} bytes nothing covers {at}";
        FileSize => Size { found: u64, data_end: u64 } "it has {found} bytes and data up to {data_end}";
        InodeBytes => Bytes { found: u64, expected: u64 } "nbytes is {found}, extents cover {expected}";
        Symlink => Target "its target is not one inline extent of its size";
    }
}
