//! How much memory a server may take, and for what.
//!
//! # Invariants
//! - This is the one place that divides the size. The user of each part keeps its bound: a thread
//!   that finds no room waits, or writes back first.
//! - The parts together are nine tenths of the size. The last tenth is for the allocator.

use std::env;
use std::ops::RangeInclusive;

use larder::OpenOptions;
use larder_fuse::{ServerOptions, Settings};

use larder_objects::parse_size;

use super::cgroup::memory_limit;

/// The program, and its memory when it is idle.
const PROGRAM_BYTES: usize = 20 << 20;
/// The least that a server works with.
const LEAST_BYTES: usize = 128 << 20;
/// The part of objects, if there are any.
const OBJECTS_PART: (usize, usize) = (3, 8);
/// The default maximum.
const MOST_BYTES_UNASKED: usize = 1 << 30;
/// The most dirty data.
const MOST_DIRTY_BYTES: usize = 64 << 20;
/// The memory of the server and of the library for an inode that the kernel knows.
const NODE_BYTES: usize = 3072;
/// The bounds of what one request brings.
const IO_BYTES: RangeInclusive<usize> = 128 << 10..=1 << 20;
/// The bounds of the number of threads.
const THREADS: RangeInclusive<usize> = 32..=128;
/// The memory of a thread besides that of requests: its stack, and its part of the allocator.
const THREAD_BYTES: usize = 128 << 10;
/// What tree blocks, extents, inodes and changed tree blocks have together, in units.
const UNITS: usize = 17;
const UNITS_OF_PART: usize = 4;
/// Makes the allocator return freed memory as early as possible, and avoid large pages that are
/// mostly unused. It reads this when a program begins.
const THRIFT: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "10"), ("MIMALLOC_ALLOW_THP", "0")];

/// A bound on the memory of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    bytes: usize,
    /// The part of it for objects.
    objects_bytes: usize,
}

impl Memory {
    /// Reads a size.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = parse_size(text)?;
        let bytes = usize::try_from(bytes).map_err(|_| "more than can be addressed")?;
        if bytes < LEAST_BYTES {
            return Err(format!("a server needs {}M at least", LEAST_BYTES >> 20));
        }
        Ok(Self { bytes, objects_bytes: 0 })
    }

    /// An eighth of the machine's memory, or of what the cgroups of this process allow, but not more
    /// than a server can use well.
    pub fn of_this_machine() -> Self {
        let info = rustix::system::sysinfo();
        let bytes = u64::from(info.mem_unit) * info.totalram;
        let bytes = bytes.min(memory_limit().unwrap_or(u64::MAX));
        let eighth = usize::try_from(bytes / 8).unwrap_or(usize::MAX);
        Self { bytes: eighth.clamp(LEAST_BYTES, MOST_BYTES_UNASKED), objects_bytes: 0 }
    }

    /// The same for a file system whose content lies in objects, which take a part.
    pub fn with_objects(self) -> Self {
        Self { objects_bytes: self.bytes / OBJECTS_PART.1 * OBJECTS_PART.0, ..self }
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// The environment that makes a server's allocator thrifty, unless the environment says
    /// otherwise.
    pub fn environment(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_small = self.bytes < MOST_BYTES_UNASKED;
        THRIFT.into_iter().filter(move |(name, _)| is_small && env::var_os(name).is_none())
    }

    /// Sets the parts of dirty data and trees.
    pub fn open(self, options: OpenOptions) -> OpenOptions {
        let options = options.dirty_bytes(self.dirty_bytes());
        let options = options.objects_bytes(self.objects_bytes as u64);
        options.cache_bytes(self.part()).commit_bytes(self.part())
    }

    /// Sets the parts of threads and inodes.
    pub fn serve(self, options: ServerOptions) -> ServerOptions {
        ServerOptions {
            most_nodes: self.part() / NODE_BYTES,
            most_io_bytes: self.io_bytes(),
            most_threads: self.threads(),
            ..options
        }
    }

    /// Sets both parts.
    pub fn limit(self, settings: Settings) -> Settings {
        let (open, server) = (self.open(settings.open), self.serve(settings.server));
        Settings { open, server, ..settings }
    }

    fn dirty_bytes(self) -> usize {
        ((self.bytes - self.objects_bytes) / 6).min(MOST_DIRTY_BYTES)
    }

    fn io_bytes(self) -> usize {
        let bytes = self.bytes / 1024;
        (1 << bytes.ilog2()).clamp(*IO_BYTES.start(), *IO_BYTES.end())
    }

    fn threads(self) -> usize {
        ((self.bytes - self.objects_bytes) / (4 << 20)).clamp(*THREADS.start(), *THREADS.end())
    }

    /// The unit of the rest. Tree blocks in the cache have four, what is known of extents one, inodes
    /// that the kernel knows four, and changed tree blocks eight: while a commit writes as many as
    /// begin one, as many again may change.
    fn part(self) -> usize {
        let of_threads = self.threads() * (2 * self.io_bytes() + THREAD_BYTES);
        let others = PROGRAM_BYTES + self.dirty_bytes() + of_threads + self.objects_bytes;
        (self.bytes / 10 * 9 - others) / UNITS * UNITS_OF_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_is_refused() {
        assert!(Memory::parse("64M").unwrap_err().contains("128M"));
        assert!(Memory::parse("much").is_err());
        assert!(Memory::of_this_machine().bytes() <= MOST_BYTES_UNASKED);
    }

    #[test]
    fn the_parts_are_no_more_than_the_whole() {
        for mib in (128..4096).step_by(32) {
            let memory = Memory { bytes: mib << 20, objects_bytes: 0 };
            for (memory, least_mib) in [(memory, 8), (memory.with_objects(), 2)] {
                let of_threads = memory.threads() * (2 * memory.io_bytes() + THREAD_BYTES);
                let others = PROGRAM_BYTES + memory.dirty_bytes() + of_threads;
                let parts = 4 * memory.part() + memory.part() / 4;
                assert!(others + memory.objects_bytes + parts <= memory.bytes / 10 * 9);
                assert!(memory.part() >= least_mib << 20, "{mib} {}", memory.part());
                assert!(memory.io_bytes().is_power_of_two());
            }
        }
    }
}
