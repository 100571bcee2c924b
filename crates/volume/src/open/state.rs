//! The states that a superblock declares, and what they allow.
//!
//! # Invariants
//! - A flag that is unknown, or that says that a program is in the middle of changing the format,
//!   forbids opening, as in the kernel: what the trees say may not be true.

use larder_format::Superblock;
use larder_format::feature;
use larder_format::node::{HEADER_FLAG_RELOC, HEADER_FLAG_WRITTEN};
use larder_format::superblock::{
    SUPER_FLAG_CHANGING_BLOCK_GROUP_TREE, SUPER_FLAG_CHANGING_DATA_CSUM, SUPER_FLAG_CHANGING_FSID,
    SUPER_FLAG_CHANGING_FSID_V2, SUPER_FLAG_CHANGING_META_CSUM, SUPER_FLAG_ERROR,
    SUPER_FLAG_METADUMP, SUPER_FLAG_METADUMP_V2, SUPER_FLAG_SEEDING,
};

use super::{OpenError, OpenOptions};

/// The flags of changes that a program makes to a file system that is not mounted.
const UNFINISHED: [(u64, &str); 5] = [
    (SUPER_FLAG_CHANGING_FSID, "its uuid"),
    (SUPER_FLAG_CHANGING_FSID_V2, "its uuid"),
    (SUPER_FLAG_CHANGING_BLOCK_GROUP_TREE, "its block group tree"),
    (SUPER_FLAG_CHANGING_DATA_CSUM, "its checksums of data"),
    (SUPER_FLAG_CHANGING_META_CSUM, "its checksums of tree blocks"),
];

/// The flags that forbid nothing more than writing.
const ONLY_READING: [(u64, &str); 4] = [
    (SUPER_FLAG_SEEDING, "it is a seed, which is never written"),
    (SUPER_FLAG_METADUMP, "it is a metadata dump, which holds no data"),
    (SUPER_FLAG_METADUMP_V2, "it is a metadata dump, which holds no data"),
    (SUPER_FLAG_ERROR, "the kernel noted that it is damaged ('larder check' says more)"),
];

/// Checks that a file system in this state may be opened; `device` is one of its devices.
pub(super) fn check(
    superblock: &Superblock,
    device: &str,
    options: &OpenOptions,
) -> Result<(), OpenError> {
    let flags = superblock.flags.get();
    if !options.any_state && !options.rescue.ignore_super_flags {
        check_finished(flags).map_err(|state| {
            let device = device.to_owned();
            OpenError::State { device, state }
        })?;
    }
    if !options.write {
        return Ok(feature::check_readable(superblock)?);
    }
    if let Some((_, state)) = ONLY_READING.iter().find(|(flag, _)| flags & flag != 0) {
        return Err(OpenError::OnlyReading { device: device.to_owned(), state });
    }
    Ok(feature::check_writable(superblock)?)
}

fn check_finished(flags: u64) -> Result<(), String> {
    if let Some((_, changed)) = UNFINISHED.iter().find(|(flag, _)| flags & flag != 0) {
        return Err(format!(
            "a change of {changed} was not finished; finish it with the btrfstune that began it"
        ));
    }
    let only_reading = ONLY_READING.iter().fold(0, |flags, (flag, _)| flags | flag);
    let unknown = flags & !(HEADER_FLAG_WRITTEN | HEADER_FLAG_RELOC | only_reading);
    if unknown != 0 {
        return Err(format!(
            "its superblock has unknown flags, {unknown:#x}: a newer program may know them"
        ));
    }
    Ok(())
}
