//! The content of files and block devices, as the system's own programs know it.

use std::io;
use std::ops::Range;

use crate::{FileDevice, system};

/// The content of a device, as libblkid names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The type, such as `ext4`, `linux_raid_member` or `gpt`.
    pub name: String,
    /// The purpose.
    pub purpose: Purpose,
    /// The uuid of a file system, as text; other content may have one too.
    pub uuid: Option<String>,
}

/// The purpose of a device's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Files.
    Filesystem,
    /// To be a part of something larger: an array, or a group of volumes.
    Member,
    /// Something that is encrypted.
    Encrypted,
    /// Partitions.
    PartitionTable,
    /// Something else, such as swap space.
    Other,
}

impl FileDevice {
    /// What libblkid knows about these bytes of the device. `None` if it knows nothing, or if the
    /// system does not have that library.
    pub fn signature(&self, range: Range<u64>) -> io::Result<Option<Signature>> {
        system::signature(&self.file()?, range)
    }
}
