//! Finding the part of a device that a file system is on.

use std::io;
use std::ops::Range;

use larder_device::Device;
use larder_format::Superblock;
use larder_format::superblock::{MAGIC, OFFSETS};

use crate::Place;
use crate::table::{self, Partition};

/// A part of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Partition(Partition),
    /// From one byte to another.
    Range {
        offset: u64,
        end: u64,
    },
}

/// Finds `place` on `device`, whose sectors have `sector_bytes`.
pub(crate) fn find(device: &dyn Device, sector_bytes: u32, place: Place) -> io::Result<Part> {
    match place {
        Place::WHOLE => Ok(Part::Whole),
        Place::Found => found(device, sector_bytes),
        Place::Partition(number) => numbered(device, sector_bytes, number),
        Place::Offset(offset) => from(device, sector_bytes, offset),
    }
}

/// Whether btrfs is on `device`, as a whole or in a partition, or was: a copy of a superblock that is
/// left will do.
pub(crate) fn holds_btrfs(device: &dyn Device, sector_bytes: u32) -> bool {
    let in_partition = || {
        let partitions = table::read(device, sector_bytes).ok().flatten().unwrap_or_default();
        partitions.iter().any(|partition| has_superblock(device, partition, ALL))
    };
    has_superblock(device, &whole(device), ALL) || in_partition()
}

/// Which copies of a superblock count. Copies of a file system that is long gone may be left.
type Copies = Range<usize>;

const FIRST: Copies = 0..1;
const OTHERS: Copies = 1..OFFSETS.len();
const ALL: Copies = 0..OFFSETS.len();

fn whole(device: &dyn Device) -> Partition {
    Partition { number: 0, offset: 0, len_bytes: device.len_bytes(), name: String::new() }
}

/// Whether one of these copies of a superblock has its magic number.
fn has_superblock(device: &dyn Device, part: &Partition, copies: Copies) -> bool {
    const MAGIC_OFFSET: u64 = std::mem::offset_of!(Superblock, magic) as u64;
    OFFSETS[copies].iter().any(|offset| {
        let mut magic = [0; 8];
        let inside = offset.0 + MAGIC_OFFSET;
        let is_inside = inside + magic.len() as u64 <= part.len_bytes;
        is_inside
            && part.offset.checked_add(inside).is_some_and(|at| {
                device.read_at(&mut magic, at).is_ok() && magic == MAGIC.to_le_bytes()
            })
    })
}

fn found(device: &dyn Device, sector_bytes: u32) -> io::Result<Part> {
    let is_whole = has_superblock(device, &whole(device), FIRST);
    let partitions = match table::read(device, sector_bytes) {
        Ok(partitions) => partitions.unwrap_or_default(),
        // What looks like a table may be anything.
        Err(_) if is_whole => return Ok(Part::Whole),
        Err(error) => return Err(error),
    };
    if partitions.is_empty() {
        return Ok(Part::Whole);
    }
    let holding = |copies: Copies| {
        let holds = |partition: &&Partition| has_superblock(device, partition, copies.clone());
        partitions.iter().filter(holds).collect::<Vec<_>>()
    };
    let mut holders = holding(FIRST);
    if holders.is_empty() && !is_whole {
        holders = holding(OTHERS);
    }
    match (is_whole, holders.as_slice()) {
        (true, []) => Ok(Part::Whole),
        (false, [partition]) => within(device, (*partition).clone()),
        (false, []) => {
            let all: Vec<_> = partitions.iter().map(ToString::to_string).collect();
            Err(problem(format!(
                "btrfs is in none of its partitions: {}; give --partition or --offset to use one \
                 nevertheless",
                all.join(", ")
            )))
        }
        _ => {
            let mut candidates: Vec<_> = holders.iter().map(ToString::to_string).collect();
            if is_whole {
                candidates.insert(0, "the whole (--offset 0)".to_owned());
            }
            Err(problem(format!(
                "btrfs is in several partitions: {}; choose one with --partition",
                candidates.join(", ")
            )))
        }
    }
}

fn numbered(device: &dyn Device, sector_bytes: u32, number: u32) -> io::Result<Part> {
    let partitions = table::read(device, sector_bytes)?
        .ok_or_else(|| problem("it has no partition table".to_owned()))?;
    match partitions.iter().find(|partition| partition.number == number) {
        Some(partition) => within(device, partition.clone()),
        None => {
            let all: Vec<_> = partitions.iter().map(ToString::to_string).collect();
            Err(problem(format!("it has no partition {number}, but these: {}", all.join(", "))))
        }
    }
}

fn from(device: &dyn Device, sector_bytes: u32, offset: u64) -> io::Result<Part> {
    let len_bytes = device.len_bytes();
    if offset >= len_bytes {
        return Err(problem(format!("it ends at byte {len_bytes}, before byte {offset}")));
    }
    // A damaged table limits nothing.
    let partitions = table::read(device, sector_bytes).ok().flatten().unwrap_or_default();
    let ends = partitions.iter().filter_map(|partition| {
        let end = partition.end()?;
        (partition.offset <= offset && offset < end).then_some(end)
    });
    Ok(Part::Range { offset, end: ends.min().unwrap_or(len_bytes).min(len_bytes) })
}

/// Fails if a partition does not lie within the device.
fn within(device: &dyn Device, partition: Partition) -> io::Result<Part> {
    let len_bytes = device.len_bytes();
    if partition.end().is_none_or(|end| end > len_bytes) {
        return Err(problem(format!(
            "it ends at byte {len_bytes}, before the end of its partition {partition}"
        )));
    }
    Ok(Part::Partition(partition))
}

fn problem(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
