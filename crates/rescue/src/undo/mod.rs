//! Undo files: what a repair overwrote.
//!
//! [`apply`] writes the changes of overlays to the devices below them, and [`undo`] takes them back.
//!
//! # Invariants
//! - Before the first byte of a device changes, the undo file has the old content of every byte that
//!   will, and is durable. So after a power cut at any write, [`undo`] gives the old state.
//! - All changes except superblocks are durable before the first superblock is written; first copies
//!   are durable before the others.
//! - An undo file that is not whole stands for a repair that had not begun: its devices are as they
//!   were.
//! - [`undo`] refuses devices of other lengths, and those with a superblock that is neither that from
//!   before the repair nor that from after it: another program has written to them since.

mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_device::{Device, DeviceError, Overlay};
use larder_format::superblock::OFFSETS;

pub use file::UndoError;
use file::{Reader, Record, Writer, sum, sync_folder_of};

/// Writes what `overlays` changed to the devices below them, after saving what is there to the new
/// file `undo`. `names` are the paths of the devices. Returns the bytes that were overwritten.
///
/// # Errors
/// If the undo file cannot be made, when no device has changed; or if a device fails, when [`undo`]
/// gives the old state.
pub fn apply(overlays: &[Arc<Overlay>], names: &[PathBuf], undo: &Path) -> Result<u64, UndoError> {
    let mut changes = Vec::new();
    for (device, overlay) in overlays.iter().enumerate() {
        let offsets = overlay.changed_offsets()?;
        changes.extend(offsets.into_iter().map(|offset| (rank(offset), device, offset)));
    }
    changes.sort_unstable();
    let mut writer = Writer::create(undo, names, overlays)?;
    let mut bytes = 0;
    for (_, device, offset) in &changes {
        let overlay = &overlays[*device];
        let mut old = vec![0; overlay.block_len_at(*offset)];
        let mut new = old.clone();
        if overlay.below().read_at(&mut old, *offset).is_err() {
            // Nothing there to keep. The undo file has zeros, which nothing takes for content.
            old.fill(0);
        }
        overlay.read_at(&mut new, *offset)?;
        bytes += old.len() as u64;
        writer.add(&Record { device: *device as u32, offset: *offset, sum: sum(&new), old })?;
    }
    writer.finish()?;
    let mut last_rank = 0;
    for (rank, device, offset) in changes {
        if rank != last_rank {
            flush(overlays)?;
            last_rank = rank;
        }
        let overlay = &overlays[device];
        let mut new = vec![0; overlay.block_len_at(offset)];
        overlay.read_at(&mut new, offset)?;
        overlay.below().write_at(&new, offset)?;
    }
    flush(overlays)?;
    Ok(bytes)
}

/// The order of writes: superblocks come last, first copies before the others.
fn rank(offset: u64) -> u8 {
    match OFFSETS.iter().position(|place| place.0 == offset) {
        None => 0,
        Some(0) => 1,
        Some(_) => 2,
    }
}

fn flush(overlays: &[Arc<Overlay>]) -> Result<(), DeviceError> {
    overlays.iter().try_for_each(|overlay| overlay.below().flush())
}

/// The devices that an undo file names.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn devices_of(undo: &Path) -> Result<Vec<PathBuf>, UndoError> {
    Ok(Reader::open(undo)?.devices.into_iter().map(|device| device.path).collect())
}

/// Gives `devices`, in the order of [`devices_of`], the content from before the repair. Returns the
/// bytes written.
///
/// # Errors
/// If the file is none or damaged, if the devices are others or were written to since, or if one
/// fails; after that, the same call completes the work.
pub fn undo(undo: &Path, devices: &[Arc<dyn Device>]) -> Result<u64, UndoError> {
    let mut reader = Reader::open(undo)?;
    reader.check_devices(devices)?;
    let mut records = Reader::open(undo)?;
    let mut superblocks = Vec::new();
    while let Some(record) = reader.next()? {
        let device = &devices[record.device as usize];
        if rank(record.offset) > 0 {
            check_superblock(device.as_ref(), &record)?;
            superblocks.push(record);
        }
    }
    // The file is whole, and the devices are those of the repair.
    let mut bytes = 0;
    while let Some(record) = records.next()? {
        if rank(record.offset) == 0 {
            devices[record.device as usize].write_at(&record.old, record.offset)?;
            bytes += record.old.len() as u64;
        }
    }
    devices.iter().try_for_each(|device| device.flush())?;
    for record in superblocks {
        devices[record.device as usize].write_at(&record.old, record.offset)?;
        bytes += record.old.len() as u64;
    }
    devices.iter().try_for_each(|device| device.flush())?;
    Ok(bytes)
}

/// Refuses a sound superblock that is neither the old nor the new one. One that is not sound may be
/// half of either, as a power cut leaves it.
fn check_superblock(device: &dyn Device, record: &Record) -> Result<(), UndoError> {
    let mut found = vec![0; record.old.len()];
    if device.read_at(&mut found, record.offset).is_err() {
        return Ok(());
    }
    let is_known = found == record.old || sum(&found) == record.sum;
    let place = larder_format::Physical(record.offset);
    if !is_known && larder_format::Superblock::parse(&found, place).is_ok() {
        return Err(UndoError::WrittenSince { device: device.name().to_owned() });
    }
    Ok(())
}

/// Removes an undo file that nobody will need.
///
/// # Errors
/// Those of the system.
pub fn forget(undo: &Path) -> io::Result<()> {
    std::fs::remove_file(undo)?;
    sync_folder_of(undo)
}
