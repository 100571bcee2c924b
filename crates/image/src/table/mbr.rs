//! The table in a master boot record: up to four partitions, one of which may be a chain of logical
//! ones.

use std::io;

use larder_device::Device;

use super::Partition;

/// Where the first of four entries is.
const ENTRIES_OFFSET: usize = 446;
const ENTRY_BYTES: usize = 16;
const RECORD_BYTES: usize = 512;
const SIGNATURE: [u8; 2] = [0x55, 0xAA];

/// Types of an entry.
const EMPTY: u8 = 0;
const GPT_PROTECTIVE: u8 = 0xEE;
/// Extended partitions: of DOS, of Windows and of Linux.
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];

/// The number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;
/// A chain may lead in a circle; the kernel follows no more either.
const MOST_LOGICAL: u32 = 252;

/// An entry of a table. Positions are in sectors.
#[derive(Clone, Copy, Debug)]
struct Entry {
    status: u8,
    kind: u8,
    start: u32,
    len: u32,
}

impl Entry {
    fn of(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self { status: bytes[0], kind: bytes[4], start: number(8), len: number(12) }
    }

    fn is_extended(self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    /// The partition, with the start relative to sector `base`.
    fn partition(self, number: u32, base: u64, sector_bytes: u64) -> Option<Partition> {
        let is_used = self.kind != EMPTY && self.len > 0;
        is_used.then(|| Partition {
            number,
            offset: (base + u64::from(self.start)) * sector_bytes,
            len_bytes: u64::from(self.len) * sector_bytes,
            name: String::new(),
        })
    }
}

/// A boot record with a table: the first sector of a disk, or a link of the chain.
#[derive(Debug)]
pub(super) struct BootRecord([Entry; 4]);

impl BootRecord {
    /// The record at the start of `device`, if there is a sound one. Boot sectors of file systems
    /// have the same signature; their code makes no sound entries.
    pub(super) fn read(device: &dyn Device) -> io::Result<Option<Self>> {
        Ok(Self::read_at(device, 0)?.filter(Self::is_sound))
    }

    fn read_at(device: &dyn Device, offset: u64) -> io::Result<Option<Self>> {
        let end = offset.checked_add(RECORD_BYTES as u64);
        if end.is_none_or(|end| end > device.len_bytes()) {
            return Ok(None);
        }
        let mut bytes = [0; RECORD_BYTES];
        device.read_at(&mut bytes, offset).map_err(io::Error::other)?;
        if bytes[RECORD_BYTES - 2..] != SIGNATURE {
            return Ok(None);
        }
        let entry = |index: usize| Entry::of(&bytes[ENTRIES_OFFSET + index * ENTRY_BYTES..]);
        Ok(Some(Self([entry(0), entry(1), entry(2), entry(3)])))
    }

    fn is_sound(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.status, 0 | 0x80))
    }

    /// Whether the table only keeps other programs away from a GPT.
    pub(super) fn protects_gpt(&self) -> bool {
        self.0.iter().any(|entry| entry.kind == GPT_PROTECTIVE)
    }

    /// The partitions, with the logical ones, and without the extended one that contains these.
    pub(super) fn partitions(
        &self,
        device: &dyn Device,
        sector_bytes: u32,
    ) -> io::Result<Vec<Partition>> {
        let sector_bytes = u64::from(sector_bytes);
        let mut partitions = Vec::new();
        let mut extended = None;
        for (number, entry) in (1..).zip(self.0) {
            if entry.is_extended() {
                extended = extended.or(Some(u64::from(entry.start)));
            } else {
                partitions.extend(entry.partition(number, 0, sector_bytes));
            }
        }
        if let Some(start) = extended {
            partitions.extend(logical(device, start, sector_bytes)?);
        }
        Ok(partitions)
    }
}

/// The logical partitions of the extended one that starts at sector `extended`. Each is described
/// by a record before it, which also leads to the next record. The chain ends where it leads
/// nowhere.
fn logical(device: &dyn Device, extended: u64, sector_bytes: u64) -> io::Result<Vec<Partition>> {
    let mut partitions = Vec::new();
    let mut at = extended;
    let mut number = FIRST_LOGICAL;
    for _ in 0..MOST_LOGICAL {
        let Some(record) = BootRecord::read_at(device, at * sector_bytes)? else { break };
        let [partition, next, ..] = record.0;
        if let Some(partition) = partition.partition(number, at, sector_bytes) {
            partitions.push(partition);
            number += 1;
        }
        if !next.is_extended() || next.start == 0 {
            break;
        }
        at = extended + u64::from(next.start);
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests {
    use larder_device::MemoryDevice;

    use super::*;

    const SECTOR: u64 = 512;

    fn put(device: &MemoryDevice, sector: u64, entries: &[(u8, u32, u32)]) {
        let mut record = [0; RECORD_BYTES];
        for (index, (kind, start, len)) in entries.iter().enumerate() {
            let at = ENTRIES_OFFSET + index * ENTRY_BYTES;
            record[at + 4] = *kind;
            record[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            record[at + 12..at + 16].copy_from_slice(&len.to_le_bytes());
        }
        record[RECORD_BYTES - 2..].copy_from_slice(&SIGNATURE);
        device.write_at(&record, sector * SECTOR).unwrap();
    }

    fn numbers_and_starts(device: &MemoryDevice) -> Vec<(u32, u64)> {
        let found = super::super::read(device, SECTOR as u32).unwrap().unwrap_or_default();
        found.iter().map(|found| (found.number, found.offset / SECTOR)).collect()
    }

    #[test]
    fn logical_partitions_count_from_five() {
        let device = MemoryDevice::new("m", 1 << 20);
        put(&device, 0, &[(0x83, 10, 5), (0, 0, 0), (0x0F, 100, 900)]);
        put(&device, 100, &[(0x83, 2, 3), (0x05, 50, 10)]);
        put(&device, 150, &[(0, 0, 0), (0x05, 80, 10)]);
        put(&device, 180, &[(0x83, 1, 9)]);
        assert_eq!(numbers_and_starts(&device), [(1, 10), (5, 102), (6, 181)]);
    }

    #[test]
    fn a_chain_in_a_circle_ends() {
        let device = MemoryDevice::new("m", 1 << 20);
        put(&device, 0, &[(0x05, 100, 900)]);
        put(&device, 100, &[(0x83, 2, 3), (0x05, 50, 10)]);
        put(&device, 150, &[(0x83, 2, 3), (0x05, 50, 10)]);
        assert_eq!(numbers_and_starts(&device).len(), MOST_LOGICAL as usize);
    }

    #[test]
    fn what_is_no_table_is_none() {
        let device = MemoryDevice::new("m", 1 << 20);
        assert_eq!(super::super::read(&device, 512).unwrap(), None);
        put(&device, 0, &[]);
        assert_eq!(super::super::read(&device, 512).unwrap(), None);
        put(&device, 0, &[(0x83, 10, 5)]);
        device.write_at(&[0x12], ENTRIES_OFFSET as u64).unwrap();
        assert_eq!(super::super::read(&device, 512).unwrap(), None);
        assert_eq!(super::super::read(&MemoryDevice::new("tiny", 100), 512).unwrap(), None);
        // Its records lie after the end.
        put(&device, 0, &[(0x83, u32::MAX, u32::MAX), (0x05, u32::MAX, u32::MAX)]);
        assert_eq!(numbers_and_starts(&device), [(1, u64::from(u32::MAX))]);
    }
}
