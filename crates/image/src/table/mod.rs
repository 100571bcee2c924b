//! Partition tables.

mod gpt;
mod mbr;

use std::fmt;
use std::io;

use larder_device::Device;

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// As the kernel counts.
    pub(crate) number: u32,
    /// Its first byte.
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
    /// The name in the table; empty if there is none.
    pub(crate) name: String,
}

impl Partition {
    /// The byte after its last; `None` for one that no device can hold.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len_bytes)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, offset, len_bytes, name } = self;
        write!(f, "{number} (")?;
        if !name.is_empty() {
            write!(f, "'{name}', ")?;
        }
        write!(f, "{len_bytes} bytes from byte {offset})")
    }
}

/// The partitions on `device`, whose sectors have `sector_bytes`, in the order of their numbers.
/// `None` without a partition table.
///
/// # Errors
/// Those of the device, and a damaged table.
pub(crate) fn read(device: &dyn Device, sector_bytes: u32) -> io::Result<Option<Vec<Partition>>> {
    let Some(record) = mbr::BootRecord::read(device)? else { return Ok(None) };
    if record.protects_gpt() {
        return gpt::read(device, sector_bytes).map(Some);
    }
    let partitions = record.partitions(device, sector_bytes)?;
    Ok(Some(partitions).filter(|partitions| !partitions.is_empty()))
}

/// An error about a table.
fn damaged(problem: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its partition table is damaged: {problem}"))
}
