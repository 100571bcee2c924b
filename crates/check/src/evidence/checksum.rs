//! Evidence of checksums, data and parity.

use larder_format::FormatError;

evidence! {
    /// What is wrong with checksums, or with what they cover.
    ChecksumEvidence {
        ChecksumItem => Unaligned "it does not start at a sector";
        ChecksumItem => Format { problem: FormatError } "{problem}";
        ChecksumItem => PastAll "it passes the end of all addresses";
        ChecksumOverlap => Overlap { previous_end: u64 } "the item before it reaches {previous_end}";
        ChecksumMissing => CompressedWithout { bytes: u64 }
            "{bytes} bytes of its extents are compressed, and it has no checksums";
        ChecksumMissing => Missing { bytes: u64 } "{bytes} of its bytes have no checksums";
        ChecksumMissing => MissingOfLog { bytes: u64 }
            "in its log: {bytes} bytes of its data have none";
        ChecksumUnexpected => OfFileWithout { bytes: u64 } "{bytes} of its bytes have checksums";
        ChecksumUnexpected => OfRoom { bytes: u64 }
            "{bytes} of its bytes have checksums, and nothing is written";
        ChecksumDangling => Dangling { bytes: u64, end: u64 }
            "{bytes} bytes up to {end} have checksums";
        DataChecksum => NoCopyMatches "no copy matches";
        DataChecksum => NoCopyRead { copy: usize, problem: String }
            "no copy matches: copy {copy} cannot be read: {problem}";
        DataChecksum => RebuiltDiffers { bytes: u64 }
            "the device of {bytes} bytes is missing, and the rebuilt data differs";
        DataCopyBad => CopyUnreadable { copy: usize, problem: String }
            "copy {copy} cannot be read: {problem}";
        DataCopyBad => CopyDiffers { copy: usize } "copy {copy} does not match";
        Parity => Parity { row: u64 } "of the full stripe at {row}";
    }
}
