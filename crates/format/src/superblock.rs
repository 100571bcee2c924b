//! The superblock: the start of a file system.
//!
//! A device has a superblock at 64 KiB, and copies at 64 MiB and 256 GiB if it is large enough.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{CHECKSUM_SIZE, ChecksumType};
use crate::error::{FormatError, read_prefix, take};
use crate::feature::{CompatRoFlags, IncompatFlags};
use crate::item::{Chunk, DevItem};
use crate::key::{DiskKey, ItemType, Key};
use crate::packed::{Packed, PackedItems};
use crate::{Logical, Physical, Uuid};

/// Size of a superblock in bytes.
pub const SUPERBLOCK_SIZE: usize = 4096;
/// `_BHRfS_M`, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"_BHRfS_M");
/// Magic of a file system that mkfs has not finished: `!BHRfS_M`.
pub const MAGIC_PARTIAL: u64 = u64::from_le_bytes(*b"!BHRfS_M");
/// Bytes of the array of system chunks.
pub const SYS_CHUNK_ARRAY_SIZE: usize = 2048;
/// Longest label in bytes, with the terminating zero.
pub const LABEL_SIZE: usize = 256;
/// Backup roots in a superblock.
pub const BACKUP_ROOTS: usize = 4;
/// Bytes at the start of a device that are never allocated.
pub const DEVICE_RESERVED_BYTES: u64 = 1024 * 1024;

/// The places of the superblock and its copies on a device of any size.
pub const OFFSETS: [Physical; 3] =
    [Physical(64 * 1024), Physical(64 * 1024 * 1024), Physical(256 * 1024 * 1024 * 1024)];

/// `super_flags`: the file system is known to be damaged.
pub const SUPER_FLAG_ERROR: u64 = 1 << 2;
/// `super_flags`: a seed device.
pub const SUPER_FLAG_SEEDING: u64 = 1 << 32;
/// `super_flags`: a metadata dump.
pub const SUPER_FLAG_METADUMP: u64 = 1 << 33;
/// `super_flags`: a metadata dump of several devices.
pub const SUPER_FLAG_METADUMP_V2: u64 = 1 << 34;
/// `super_flags`: the fsid is being changed.
pub const SUPER_FLAG_CHANGING_FSID: u64 = 1 << 35;
/// `super_flags`: the fsid is being changed through the metadata uuid.
pub const SUPER_FLAG_CHANGING_FSID_V2: u64 = 1 << 36;
/// `super_flags`: block groups move to or from a tree of their own.
pub const SUPER_FLAG_CHANGING_BLOCK_GROUP_TREE: u64 = 1 << 38;
/// `super_flags`: data gets checksums of another type.
pub const SUPER_FLAG_CHANGING_DATA_CSUM: u64 = 1 << 39;
/// `super_flags`: tree blocks get checksums of another type.
pub const SUPER_FLAG_CHANGING_META_CSUM: u64 = 1 << 40;

/// The superblock (`struct btrfs_super_block`, 4096 bytes).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// Checksum of all that follows.
    pub csum: [u8; CHECKSUM_SIZE],
    /// Id of the file system.
    pub fsid: [u8; 16],
    /// Physical address of this copy.
    pub bytenr: U64,
    /// Header flags and `SUPER_FLAG_*`.
    pub flags: U64,
    /// [`MAGIC`].
    pub magic: U64,
    /// The transaction that wrote it.
    pub generation: U64,
    /// Logical address of the root tree's root.
    pub root: U64,
    /// Logical address of the chunk tree's root.
    pub chunk_root: U64,
    /// Logical address of the root of the tree of log trees, or 0.
    pub log_root: U64,
    /// Unused.
    pub log_root_transid: U64,
    /// Sum of the devices' sizes in bytes.
    pub total_bytes: U64,
    /// Bytes that block groups use.
    pub bytes_used: U64,
    /// The root tree's directory, [`crate::objectid::ROOT_TREE_DIR`].
    pub root_dir_objectid: U64,
    /// Number of devices.
    pub num_devices: U64,
    /// Bytes in a sector: the unit of data.
    pub sectorsize: U32,
    /// Bytes in a tree block.
    pub nodesize: U32,
    /// Equal to `nodesize`.
    pub leafsize: U32,
    /// Equal to `sectorsize`.
    pub stripesize: U32,
    /// Bytes used in `sys_chunk_array`.
    pub sys_chunk_array_size: U32,
    /// Generation of the chunk tree's root.
    pub chunk_root_generation: U64,
    /// Compatible features.
    pub compat_flags: U64,
    /// [`CompatRoFlags`].
    pub compat_ro_flags: U64,
    /// [`IncompatFlags`].
    pub incompat_flags: U64,
    /// [`ChecksumType`].
    pub csum_type: U16,
    /// Level of the root tree's root.
    pub root_level: u8,
    /// Level of the chunk tree's root.
    pub chunk_root_level: u8,
    /// Level of the log root.
    pub log_root_level: u8,
    /// This device.
    pub dev_item: DevItem,
    /// Label, ended by a zero.
    pub label: [u8; LABEL_SIZE],
    /// Generation of the v1 space cache, 0 when there is a free space tree, or all ones for none.
    pub cache_generation: U64,
    /// Generation up to which the uuid tree is complete.
    pub uuid_tree_generation: U64,
    /// The uuid that tree blocks carry, with [`IncompatFlags::METADATA_UUID`].
    pub metadata_uuid: [u8; 16],
    /// Extent tree v2: number of global roots.
    pub nr_global_roots: U64,
    /// Zero.
    pub reserved: [U64; 27],
    /// Keys and items of the system chunks.
    pub sys_chunk_array: [u8; SYS_CHUNK_ARRAY_SIZE],
    /// The roots of the last four commits, in rotation.
    pub super_roots: [BackupRoot; BACKUP_ROOTS],
    /// Zero.
    pub padding: [u8; 565],
}

const _: () = assert!(size_of::<Superblock>() == SUPERBLOCK_SIZE);

/// The roots of one commit (`struct btrfs_root_backup`, 168 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BackupRoot {
    /// Address of the root tree's root.
    pub tree_root: U64,
    /// Its generation.
    pub tree_root_gen: U64,
    /// Address of the chunk tree's root.
    pub chunk_root: U64,
    /// Its generation.
    pub chunk_root_gen: U64,
    /// Address of the extent tree's root.
    pub extent_root: U64,
    /// Its generation.
    pub extent_root_gen: U64,
    /// Address of the top-level subvolume's root.
    pub fs_root: U64,
    /// Its generation.
    pub fs_root_gen: U64,
    /// Address of the device tree's root.
    pub dev_root: U64,
    /// Its generation.
    pub dev_root_gen: U64,
    /// Address of the checksum tree's root.
    pub csum_root: U64,
    /// Its generation.
    pub csum_root_gen: U64,
    /// Sum of the devices' sizes in bytes.
    pub total_bytes: U64,
    /// Bytes that block groups use.
    pub bytes_used: U64,
    /// Number of devices.
    pub num_devices: U64,
    /// Zero.
    pub unused_64: [U64; 4],
    /// Level of the root tree's root.
    pub tree_root_level: u8,
    /// Level of the chunk tree's root.
    pub chunk_root_level: u8,
    /// Level of the extent tree's root.
    pub extent_root_level: u8,
    /// Level of the top-level subvolume's root.
    pub fs_root_level: u8,
    /// Level of the device tree's root.
    pub dev_root_level: u8,
    /// Level of the checksum tree's root.
    pub csum_root_level: u8,
    /// Zero.
    pub unused_8: [u8; 10],
}

const _: () = assert!(size_of::<BackupRoot>() == 168);

impl Superblock {
    /// A superblock of zeros.
    pub fn zeroed() -> Box<Self> {
        Self::new_box_zeroed().expect("a superblock is 4 KiB")
    }

    /// Reads a superblock: magic, checksum, and the fields that reading everything else depends on.
    ///
    /// `offset` is the place of the bytes; a copy records its own place.
    pub fn parse(bytes: &[u8], offset: Physical) -> Result<Box<Self>, FormatError> {
        let (view, _) = read_prefix::<Self>(bytes)?;
        let invalid = |problem: String| FormatError::invalid("superblock", problem);
        if view.magic.get() != MAGIC {
            let reason = if view.magic.get() == MAGIC_PARTIAL {
                "it was left by a mkfs that did not finish"
            } else {
                "no btrfs magic"
            };
            return Err(invalid(reason.into()));
        }
        let csum_type = ChecksumType::from_disk(view.csum_type.get())
            .ok_or_else(|| invalid(format!("unknown checksum type {}", view.csum_type)))?;
        let wanted = csum_type.compute_block(&bytes[..SUPERBLOCK_SIZE]);
        if view.csum[..csum_type.size()] != *wanted.as_bytes() {
            return Err(invalid(format!("checksum does not match, computed {wanted}")));
        }
        view.validate(offset)?;
        Ok(Box::new(view.clone()))
    }

    /// Checks the fields that reading everything else depends on, except magic and checksum.
    pub fn validate(&self, offset: Physical) -> Result<(), FormatError> {
        let sectorsize = self.sectorsize.get();
        let nodesize = self.nodesize.get();
        let power_in =
            |value: u32, low: u32| value.is_power_of_two() && (low..=64 * 1024).contains(&value);
        let aligned = |address: &U64| address.get().is_multiple_of(u64::from(sectorsize));
        let problem = if ChecksumType::from_disk(self.csum_type.get()).is_none() {
            format!("unknown checksum type {}", self.csum_type)
        } else if !power_in(sectorsize, 512) {
            format!("sectorsize {sectorsize} is not a power of two between 512 and 65536")
        } else if !power_in(nodesize, 4096) || nodesize < sectorsize {
            format!("nodesize {nodesize} is not a power of two between 4096 and 65536")
        } else if self.bytenr.get() != offset.0 {
            format!("it says it is at {} but lies at {offset}", self.bytenr)
        } else if self.root_level >= 8 || self.chunk_root_level >= 8 || self.log_root_level >= 8 {
            "a root level is over 7".into()
        } else if !(aligned(&self.root) && aligned(&self.chunk_root) && aligned(&self.log_root)) {
            format!("a root address is not a multiple of the sectorsize {sectorsize}")
        } else if self.sys_chunk_array_size.get() as usize > SYS_CHUNK_ARRAY_SIZE {
            format!("sys_chunk_array_size {} is over 2048", self.sys_chunk_array_size)
        } else if self.num_devices.get() == 0 {
            "num_devices is 0".into()
        } else {
            return Ok(());
        };
        Err(FormatError::invalid("superblock", problem))
    }

    /// Sets the checksum for the current content.
    ///
    /// # Panics
    /// When `csum_type` is not a known one.
    pub fn update_checksum(&mut self) {
        self.csum = self.checksum_type().compute_block(self.as_bytes()).padded();
    }

    /// The checksum algorithm.
    ///
    /// # Panics
    /// When `csum_type` is not a known one; [`Superblock::parse`] refuses such a superblock.
    pub fn checksum_type(&self) -> ChecksumType {
        ChecksumType::from_disk(self.csum_type.get()).expect("validated when parsed")
    }

    /// Features without which the format cannot be read.
    pub fn incompat_flags(&self) -> IncompatFlags {
        IncompatFlags::from_bits_retain(self.incompat_flags.get())
    }

    /// Features without which the format cannot be written.
    pub fn compat_ro_flags(&self) -> CompatRoFlags {
        CompatRoFlags::from_bits_retain(self.compat_ro_flags.get())
    }

    /// Whether every feature of `flags` is on.
    pub fn has_incompat(&self, flags: IncompatFlags) -> bool {
        self.incompat_flags().contains(flags)
    }

    /// The id of the file system.
    pub fn fsid(&self) -> Uuid {
        Uuid::from_bytes(self.fsid)
    }

    /// The id that headers of tree blocks carry.
    pub fn metadata_uuid(&self) -> Uuid {
        if self.has_incompat(IncompatFlags::METADATA_UUID) {
            Uuid::from_bytes(self.metadata_uuid)
        } else {
            self.fsid()
        }
    }

    /// Address of the root tree's root.
    pub fn root(&self) -> Logical {
        Logical(self.root.get())
    }

    /// Address of the chunk tree's root.
    pub fn chunk_root(&self) -> Logical {
        Logical(self.chunk_root.get())
    }

    /// The label up to its terminating zero; any bytes.
    pub fn label(&self) -> &[u8] {
        self.label.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// The system chunks: key and chunk of each.
    pub fn system_chunks(&self) -> SystemChunks<'_> {
        let used = (self.sys_chunk_array_size.get() as usize).min(SYS_CHUNK_ARRAY_SIZE);
        SystemChunks::new(&self.sys_chunk_array[..used])
    }
}

/// Iterates over the system chunk array. Ends after an error.
pub type SystemChunks<'a> = PackedItems<'a, (Key, Chunk<'a>)>;

impl<'a> Packed<'a> for (Key, Chunk<'a>) {
    fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FormatError> {
        let (key, rest) = read_prefix::<DiskKey>(bytes)?;
        let key = key.get();
        if key.item_type != ItemType::CHUNK_ITEM {
            let problem = format!("key {key} is not a chunk's");
            return Err(FormatError::invalid("system chunk array", problem));
        }
        let (item, rest) = take(rest, Chunk::len_bytes_of(rest)?, "system chunk")?;
        Ok(((key, Chunk::parse(item)?), rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Box<Superblock> {
        let mut superblock = Superblock::zeroed();
        superblock.magic = MAGIC.into();
        superblock.bytenr = OFFSETS[0].0.into();
        superblock.sectorsize = 4096.into();
        superblock.nodesize = 16384.into();
        superblock.num_devices = 1.into();
        superblock.update_checksum();
        superblock
    }

    #[test]
    fn a_sound_superblock_parses() {
        let superblock = sound();
        assert!(Superblock::parse(superblock.as_bytes(), OFFSETS[0]).is_ok());
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let superblock = sound();
        for at in (0..SUPERBLOCK_SIZE).step_by(7) {
            let mut bytes = superblock.as_bytes().to_vec();
            bytes[at] ^= 1;
            // The unused part of the checksum field is not covered.
            let unused = (4..CHECKSUM_SIZE).contains(&at);
            assert_eq!(Superblock::parse(&bytes, OFFSETS[0]).is_ok(), unused, "byte {at}");
        }
    }

    #[test]
    fn a_copy_in_the_wrong_place_is_refused() {
        let error = Superblock::parse(sound().as_bytes(), OFFSETS[1]).unwrap_err();
        assert!(error.to_string().contains("lies at 67108864"), "{error}");
    }
}
