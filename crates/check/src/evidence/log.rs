//! Evidence of logs.

evidence! {
    /// What is wrong with a log that a crash left.
    LogEvidence {
        LogBlock => InExtent { start: u64, len_bytes: u64 }
            "the extent at {start} has {len_bytes} bytes";
        LogBlock => InLoggedData { start: u64 } "logged data is at {start}, too";
        LogExtent => OverExtent { len_bytes: u64, other_bytes: u64, other: u64 }
            "in its log: {len_bytes} bytes of data, but an extent of {other_bytes} bytes is at {other}";
        LogExtent => OverLoggedData { len_bytes: u64, other: u64 }
            "in its log: {len_bytes} bytes of data, but other logged data is at {other}";
        LogExtent => OutsideOfData { len_bytes: u64 }
            "in its log: {len_bytes} bytes of data, where no block group holds data";
    }
}
