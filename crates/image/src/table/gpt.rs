//! The GUID partition table. Its checksums must be right; if the first header is damaged, the
//! backup at the end of the disk counts.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use gpt::disk::LogicalBlockSize;
use gpt::header::{Header, read_header_from_arbitrary_device};
use gpt::partition::file_read_partitions;
use larder_device::Device;

use super::{Partition, damaged};

/// The bytes of an entry in every table that is in use.
const ENTRY_BYTES: u32 = 128;
/// A table has 128 entries as a rule.
const MOST_ENTRIES: u32 = 4096;

/// The partitions on a device with sectors of `sector_bytes`. An image file may come from a disk
/// with other sectors.
pub(super) fn read(device: &dyn Device, sector_bytes: u32) -> io::Result<Vec<Partition>> {
    let sizes = if sector_bytes == 4096 {
        [LogicalBlockSize::Lb4096, LogicalBlockSize::Lb512]
    } else {
        [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096]
    };
    let mut problem = None;
    for is_backup in [false, true] {
        for size in sizes {
            let partitions =
                header(device, size, is_backup).and_then(|header| entries(device, &header, size));
            match partitions {
                Ok(partitions) => return Ok(partitions),
                Err(error) => {
                    problem.get_or_insert(error);
                }
            }
        }
    }
    Err(problem.expect("something was tried"))
}

fn header(device: &dyn Device, size: LogicalBlockSize, is_backup: bool) -> io::Result<Header> {
    // The header is read from the second sector after the base.
    let base = if is_backup {
        let from_end = device.len_bytes() / size.as_u64() * size.as_u64();
        from_end.checked_sub(2 * size.as_u64()).ok_or_else(|| damaged("the disk is too short"))?
    } else {
        0
    };
    let mut reader = Reader { device, base, position: 0 };
    let header = read_header_from_arbitrary_device(&mut reader, size).map_err(damaged)?;
    // The crate relies on both.
    if header.part_size != ENTRY_BYTES {
        return Err(damaged(format_args!("entries of {} bytes", header.part_size)));
    }
    if header.num_parts > MOST_ENTRIES {
        return Err(damaged(format_args!("{} entries", header.num_parts)));
    }
    Ok(header)
}

fn entries(
    device: &dyn Device,
    header: &Header,
    size: LogicalBlockSize,
) -> io::Result<Vec<Partition>> {
    let mut reader = BufReader::new(Reader { device, base: 0, position: 0 });
    let found = file_read_partitions(&mut reader, header, size).map_err(damaged)?;
    let used = found.into_iter().filter(|(_, entry)| entry.is_used());
    Ok(used
        .filter_map(|(number, entry)| {
            let (offset, len_bytes) = (entry.bytes_start(size).ok()?, entry.bytes_len(size).ok()?);
            Some(Partition { number, offset, len_bytes, name: entry.name })
        })
        .collect())
}

/// Reads a device from a base on.
struct Reader<'d> {
    device: &'d dyn Device,
    base: u64,
    position: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.base.checked_add(self.position);
        let rest = rest.and_then(|at| self.device.len_bytes().checked_sub(at)).unwrap_or(0);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.len());
        if len > 0 {
            let at = self.base + self.position;
            self.device.read_at(&mut buf[..len], at).map_err(io::Error::other)?;
            self.position += len as u64;
        }
        Ok(len)
    }
}

impl Seek for Reader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let len = self.device.len_bytes().saturating_sub(self.base);
        let position = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => len.checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use larder_device::MemoryDevice;

    use super::*;

    /// CRC-32 as in the header.
    fn crc32(bytes: &[u8]) -> u32 {
        let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        !bytes
            .iter()
            .fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
    }

    /// What is said of a table with a sound checksum and these numbers.
    fn problem(entries: u32, entry_bytes: u32, first_entry: u64) -> String {
        let device = MemoryDevice::new("m", 1 << 20);
        let mut header = [0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        header[72..80].copy_from_slice(&first_entry.to_le_bytes());
        header[80..84].copy_from_slice(&entries.to_le_bytes());
        header[84..88].copy_from_slice(&entry_bytes.to_le_bytes());
        let sum = crc32(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        device.write_at(&header, 512).unwrap();
        read(&device, 512).unwrap_err().to_string()
    }

    #[test]
    fn numbers_that_no_table_has_are_errors() {
        assert!(problem(128, 256, 2).contains("damaged: entries of 256 bytes"));
        assert!(problem(u32::MAX, 128, 2).contains("damaged: 4294967295 entries"));
        for first_entry in [2, 1 << 40, u64::MAX] {
            assert!(problem(128, 128, first_entry).contains("is damaged"));
        }
        assert!(read(&MemoryDevice::new("short", 600), 512).is_err());
    }
}
