//! From logical addresses to devices.
//!
//! A [`Volume`] is a file system's devices seen as one address space: chunks map its ranges to
//! addresses on devices, with copies and parity as their profile says. Reads are verified and
//! repaired. This crate knows no tree except the chunk tree, which it reads once when a volume is
//! opened.
//!
//! - [`scan`]: the superblock of a device.
//! - [`Volume::open`], [`Volume::new`] for a new file system.
//! - [`Volume::read_tree_block`], [`Volume::read_data`], [`Volume::read_copy`]; and
//!   [`Volume::verify_tree_block`], [`Volume::verify_data`] for every copy;
//!   [`Volume::read_member`], [`Volume::write_member`] for the one of a device.
//! - [`Volume::geometry`]: the devices and chunks of a time; [`Volume::add_chunk`],
//!   [`Volume::replace_chunk`], [`Volume::remove_chunk`], [`Volume::begin_move`].
//! - [`Volume::write`], [`Volume::flush`], [`Volume::write_superblocks`], [`Volume::refresh`],
//!   [`Volume::without_writes`]; [`Volume::readmit`] for devices that refused writes.
//! - [`Volume::open_without_chunk_tree`], [`Volume::with_stand_ins`]: volumes of damaged file
//!   systems.
//! - [`chunk`]: where the bytes of chunks lie, useful without devices.
//! - [`layout`]: where new chunks go.
//!
//! # Invariants
//! - A request sees one [`Geometry`] from its beginning to its end (`geometry.rs`).
//! - No two chunks overlap; every stripe of every chunk lies within a device of the file system.
//! - The superblock of the highest generation is the truth. A device with an older one may have
//!   missed commits: the volume reads content that it may have missed only if no other copy is
//!   good, and only if a checksum proves it right.
//! - A device gets a newer superblock only when it has everything that the superblock leads to.
//! - The caller gets exactly the bytes that were verified, and never bytes that are known to be
//!   bad; unless it says that it does without checksums ([`Rescue`]), and no copy is good. Such
//!   reads are counted and reported, and change no copy.
//! - Without `write` no byte of any device changes; a seed's bytes never change.
//! - No thread holds a lock across device I/O, except the lock of one row of a chunk with parity,
//!   and that of writes against copying.
//! - A thread that changes a parity row, or rebuilds from it, holds the lock of the row. All reads
//!   for new parity come before any write of the row.
//! - Healing never replaces a sound newer block.
//! - A hostile chunk tree costs at most its own size: no block is visited twice.
//! - Bad copies, their repairs, and failing devices are always counted, and reported at a limited
//!   rate (`report.rs`).
#![forbid(unsafe_code)]

pub mod chunk;
mod errors;
mod failures;
mod geometry;
pub mod layout;
mod left_out;
mod member;
mod moving;
mod open;
mod outdated;
mod parity;
mod problem;
mod read;
mod report;
mod rescue;
mod scan;
mod stand_ins;
mod stats;
mod twin;
mod version;
mod volume;
mod write;

pub use chunk::{Chunk, ChunkError, ChunkMap, ChunkStripe};
pub use errors::DeviceErrors;
pub use geometry::Geometry;
pub use member::{FoundTwin, TWIN_DEVID, VolumeDevice};
pub use moving::MovedRange;
pub use open::{MissingDevice, OpenError, OpenOptions, StateRoot, UsedSeparately};
pub use problem::{CopyProblem, FailedCopy, ReadError, Unmapped};
pub use read::{BlockExpectation, BlockRead, DataRead};
pub use rescue::{Rescue, UnknownRescue};
pub use scan::{ScanError, ScannedDevice, SuperblockCopy, SuperblockProblem, scan, scan_copy};
pub use stand_ins::StandIns;
pub use stats::{DeviceStats, VolumeStats};
pub use volume::{MappedRange, ReadPolicy, Volume};
pub use write::WriteError;
