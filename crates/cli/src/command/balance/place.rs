//! What to balance: an image, or a mounted file system.

use std::ffi::OsStr;
use std::fs::File;
use std::io;

use larder::Filesystem;

use crate::source::Source;
use crate::target::Target;

/// A file system to balance.
pub enum Place {
    /// One that is not mounted.
    Image(Filesystem),
    /// A directory of one that is mounted, by larder or by the kernel.
    Mounted(File),
}

impl Place {
    pub fn open(source: &Source, text: &OsStr) -> anyhow::Result<Self> {
        match source.mounted_directory(text)? {
            Some(path) => Ok(Self::Mounted(File::open(path)?)),
            None => Ok(Self::Image(source.open_for_writing(&Target::parse(text).image)?)),
        }
    }

    /// The same, only to look.
    pub fn open_to_look(source: &Source, text: &OsStr) -> anyhow::Result<Self> {
        match source.mounted_directory(text)? {
            Some(path) => Ok(Self::Mounted(File::open(path)?)),
            None => Ok(Self::Image(source.open(&Target::parse(text).image)?)),
        }
    }
}

/// Whether an error says that there is no balance.
pub fn is_not_running(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOTCONN)
}
