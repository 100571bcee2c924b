//! The btrfs on-disk format.
//!
//! Everything here is a pure function of bytes. Structures that have a fixed layout are
//! `#[repr(C)]` views ([`zerocopy`]) with their size asserted at compile time; structures of
//! variable length are parsed by iterators that check every length before they use it.
//!
//! Invariants of the crate:
//! * no I/O, no locks, no `unsafe`;
//! * nothing is allocated in proportion to a length field that has not been checked against the
//!   bytes that exist;
//! * no input makes it panic.
//! * [`tree_check`] is never stricter than the checker of Linux 6.18 on anything that this checks.
//!   It is linear in the block, and allocates only for an error.
//! * [`compression::decompress`] touches nothing outside its two slices. Its memory is constant for
//!   each thread, and its time bounded by the two lengths.
//! * The output of a [`compression::Compressor`] depends only on its input, level, sector size and
//!   kind of extent, never on earlier extents.
//!
//! Start reading at [`superblock`], then [`key`] and [`node`], then the items in [`item`];
//! [`tree_check`] has the rules for valid ones.
#![forbid(unsafe_code)]

pub mod address;
pub mod block_group;
pub mod checksum;
pub mod compression;
pub mod crc32c;
mod error;
pub mod feature;
mod id_map;
pub mod item;
pub mod key;
pub mod name_hash;
pub mod node;
pub mod objectid;
mod packed;
mod profile;
mod space_kind;
pub mod superblock;
pub mod tree_check;
pub mod xattr_ids;

pub use address::{FileOffset, Logical, Physical};
pub use block_group::BlockGroupFlags;
pub use checksum::{Checksum, ChecksumType};
pub use error::{FormatError, read_exact_item, read_prefix};
pub use id_map::{IdMap, IdMapError, IdRange, OwnerMap};
pub use key::{DiskKey, ItemType, Key};
pub use node::{Header, Node};
pub use packed::{Packed, PackedItems};
pub use profile::{Profile, Shape};
pub use space_kind::SpaceKind;
pub use superblock::Superblock;
pub use uuid::Uuid;
