//! The superblock of a device, chosen among its copies.

use std::fmt;

use larder_device::{Device, DeviceError};
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{FormatError, Physical, Superblock};

/// The superblock copies of a device.
#[derive(Debug)]
pub struct ScannedDevice {
    /// The superblock that counts.
    pub superblock: Box<Superblock>,
    /// The copy that it comes from: an index into [`OFFSETS`] and into `copies`.
    pub copy: usize,
    /// The result for each place within the device, in order.
    pub copies: Vec<SuperblockCopy>,
}

impl ScannedDevice {
    /// Whether the first copy is sound and older than the superblock that counts.
    pub(crate) fn has_older_first_copy(&self) -> bool {
        let first = self.copies.first().filter(|copy| copy.offset == OFFSETS[0]);
        let generation = first.and_then(|copy| copy.state.as_ref().ok());
        generation.is_some_and(|first| *first < self.superblock.generation.get())
    }
}

/// The result for one place of a superblock.
#[derive(Debug)]
pub struct SuperblockCopy {
    /// The place.
    pub offset: Physical,
    /// The generation of the superblock there, or what is wrong with it.
    pub state: Result<u64, SuperblockProblem>,
}

/// Why a superblock copy does not count.
#[derive(Debug, thiserror::Error)]
pub enum SuperblockProblem {
    /// It cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It is not a sound superblock.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It is a sound superblock of another file system than the first sound copy.
    #[error("it belongs to another file system, {0}")]
    OtherFilesystem(larder_format::Uuid),
}

/// A device without a valid superblock.
#[derive(Debug, thiserror::Error)]
#[error("{device}: no btrfs superblock{}", Problems(.copies))]
pub struct ScanError {
    /// The device's name.
    pub device: String,
    /// The result for each place that was read; empty if the device is too short.
    pub copies: Vec<SuperblockCopy>,
}

struct Problems<'a>(&'a [SuperblockCopy]);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems =
            self.0.iter().filter_map(|copy| Some((copy.offset, copy.state.as_ref().err()?)));
        problems.enumerate().try_for_each(|(index, (offset, problem))| {
            write!(f, "{} at {offset}: {problem}", if index == 0 { ":" } else { ";" })
        })
    }
}

/// Reads all superblock copies of a device and chooses the sound one of the highest generation, the
/// first of several. Copies of another file system than the first sound one are leftovers and do
/// not count.
pub fn scan(device: &dyn Device) -> Result<ScannedDevice, ScanError> {
    choose(device, &OFFSETS)
}

/// Reads one superblock copy of a device, an index into [`OFFSETS`].
pub fn scan_copy(device: &dyn Device, copy: usize) -> Result<ScannedDevice, ScanError> {
    let offset = OFFSETS.get(copy).map_or(&[][..], std::slice::from_ref);
    choose(device, offset).map(|scanned| ScannedDevice { copy, ..scanned })
}

fn choose(device: &dyn Device, offsets: &[Physical]) -> Result<ScannedDevice, ScanError> {
    let mut best: Option<(usize, Box<Superblock>)> = None;
    let mut copies = Vec::new();
    let reached = |offset: &&Physical| offset.0 + SUPERBLOCK_SIZE as u64 <= device.len_bytes();
    for (index, &offset) in offsets.iter().take_while(reached).enumerate() {
        let state = match read_superblock(device, offset) {
            Err(problem) => Err(problem),
            Ok(found) => match &best {
                Some((_, best)) if best.fsid != found.fsid => {
                    Err(SuperblockProblem::OtherFilesystem(found.fsid()))
                }
                _ => {
                    let generation = found.generation.get();
                    if best.as_ref().is_none_or(|(_, best)| best.generation.get() < generation) {
                        best = Some((index, found));
                    }
                    Ok(generation)
                }
            },
        };
        copies.push(SuperblockCopy { offset, state });
    }
    match best {
        Some((copy, superblock)) => Ok(ScannedDevice { superblock, copy, copies }),
        None => Err(ScanError { device: device.name().to_owned(), copies }),
    }
}

fn read_superblock(
    device: &dyn Device,
    offset: Physical,
) -> Result<Box<Superblock>, SuperblockProblem> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut bytes, offset.0)?;
    Ok(Superblock::parse(&bytes, offset)?)
}
