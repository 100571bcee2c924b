//! How a device is opened.

use std::path::PathBuf;
use std::time::Duration;

/// The bounds of the content of a full segment, in bytes.
const LEAST_SEGMENT_BYTES: u64 = 1 << 20;
const MOST_SEGMENT_BYTES: u64 = 8 << 20;

/// A device works with so much memory.
const LEAST_MEMORY_BYTES: u64 = 32 << 20;

/// The most segments that wait for the store.
pub(crate) const MOST_UNSENT: usize = 8;

/// The most segments in memory: those, and the open one.
const MOST_SEGMENTS: usize = MOST_UNSENT + 1;

/// A folder for content of segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFolder {
    /// Where it is. Larder makes it.
    pub path: PathBuf,
    /// How many bytes its files take at most.
    pub capacity_bytes: u64,
}

/// Where the journals of this machine are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// A file or block device, or a directory with a file for each device.
    pub path: PathBuf,
    /// How long a new file becomes, in bytes.
    pub len_bytes: u64,
}

/// How a device is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much content of segments is kept in memory, in bytes.
    pub cache_bytes: u64,
    /// How much content may be on its way from the store at once, in bytes.
    pub request_bytes: u64,
    /// Where more of it is kept on a disk of this machine.
    pub cache: Option<CacheFolder>,
    /// How much content a full segment has, in bytes.
    pub segment_bytes: usize,
    /// How many ranges a manifest may list before the writer makes a checkpoint.
    pub most_ranges: usize,
    /// How many flushes may follow a manifest: who opens the device reads them all.
    pub most_flushes: u64,
    /// A device that is open for reading for longer than moments holds a lease on its state.
    pub lease: bool,
    /// How long a writer repeats requests that fail, as long as the device is its own: for ever, if
    /// there is no time.
    pub patience: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 248 << 20,
            request_bytes: 64 << 20,
            cache: None,
            segment_bytes: MOST_SEGMENT_BYTES as usize,
            most_ranges: 2048,
            most_flushes: 64,
            lease: true,
            patience: None,
        }
    }
}

impl Options {
    /// The same, with parts of the memory that are `memory_bytes` together, or 32 MiB.
    #[must_use]
    pub fn within(self, memory_bytes: u64) -> Self {
        let memory_bytes = memory_bytes.max(LEAST_MEMORY_BYTES);
        let request_bytes = memory_bytes / 6;
        let segments = MOST_SEGMENTS as u64;
        let segment_bytes = memory_bytes / 4 / segments;
        let segment_bytes = segment_bytes.clamp(LEAST_SEGMENT_BYTES, MOST_SEGMENT_BYTES);
        Self {
            cache_bytes: memory_bytes - request_bytes - segments * segment_bytes,
            request_bytes,
            segment_bytes: segment_bytes as usize,
            ..self
        }
    }
}
