//! How much memory a server may take, and what for.

use larder::OpenOptions;
use larder_fuse::{ServerOptions, Settings};

use crate::units::parse_size;

/// What has a bound of its own: data that waits to be written, and the program itself.
const FIXED_BYTES: usize = 80 << 20;
/// The least that a server works with.
const LEAST_BYTES: usize = 128 << 20;
/// The most that a server takes unless told otherwise.
const MOST_BYTES_UNASKED: usize = 1 << 30;
/// What the server has in memory for an inode that the kernel knows, and what the library has for it.
const NODE_BYTES: usize = 2048;

/// A bound on the memory of a server: data that waits to be written, blocks of trees, those that a
/// commit will write, and inodes that the kernel knows have their parts in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    bytes: usize,
}

impl Memory {
    /// Reads a size.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = parse_size(text)?;
        let bytes = usize::try_from(bytes).map_err(|_| "more than can be addressed")?;
        if bytes < LEAST_BYTES {
            return Err(format!("a server needs {}M at least", LEAST_BYTES >> 20));
        }
        Ok(Self { bytes })
    }

    /// An eighth of the machine's, but not more than a server can use well.
    pub fn of_this_machine() -> Self {
        let info = rustix::system::sysinfo();
        let bytes = u64::from(info.mem_unit) * info.totalram;
        let eighth = usize::try_from(bytes / 8).unwrap_or(usize::MAX);
        Self { bytes: eighth.clamp(LEAST_BYTES, MOST_BYTES_UNASKED) }
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Gives trees their parts.
    pub fn open(self, options: OpenOptions) -> OpenOptions {
        options.cache_bytes(self.part()).commit_bytes(self.part())
    }

    /// Gives inodes their part.
    pub fn serve(self, options: ServerOptions) -> ServerOptions {
        ServerOptions { most_nodes: self.part() / NODE_BYTES, ..options }
    }

    /// Gives both their parts.
    pub fn limit(self, settings: Settings) -> Settings {
        let (open, server) = (self.open(settings.open), self.serve(settings.server));
        Settings { open, server, ..settings }
    }

    /// A quarter of what has no bound of its own; the last is what the allocator needs besides.
    fn part(self) -> usize {
        (self.bytes - FIXED_BYTES) / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_little_is_refused() {
        assert!(Memory::parse("64M").unwrap_err().contains("128M"));
        assert!(Memory::parse("much").is_err());
        assert_eq!(Memory::parse("128M").unwrap().part(), 12 << 20);
        assert!(Memory::of_this_machine().bytes() <= MOST_BYTES_UNASKED);
    }
}
