//! Roots of trees, and names of subvolumes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{InodeItem, Timespec};
use crate::error::{FormatError, read_prefix};
use crate::key::DiskKey;
use crate::{Logical, Uuid};

/// Bytes of an old root item, without uuids and times.
pub const ROOT_ITEM_V0_SIZE: usize = 239;
/// [`RootItem`] flag: the subvolume is read-only.
pub const ROOT_SUBVOL_RDONLY: u64 = 1;
/// [`RootItem`] flag: the subvolume is being deleted.
pub const ROOT_SUBVOL_DEAD: u64 = 1 << 48;

/// The root of a tree (`struct btrfs_root_item`, 439 bytes). A snapshot's key offset is the
/// transaction that made it; other trees have 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RootItem {
    /// An inode, mostly unused.
    pub inode: InodeItem,
    /// The transaction that last changed the tree.
    pub generation: U64,
    /// The root directory's inode: 256 for subvolumes, 0 for other trees.
    pub root_dirid: U64,
    /// Logical address of the root block.
    pub bytenr: U64,
    /// Unused.
    pub byte_limit: U64,
    /// Unused.
    pub bytes_used: U64,
    /// The transaction of the last snapshot of this tree.
    pub last_snapshot: U64,
    /// [`ROOT_SUBVOL_RDONLY`], [`ROOT_SUBVOL_DEAD`].
    pub flags: U64,
    /// 1, or 0 when the subvolume is being deleted.
    pub refs: U32,
    /// The progress of the deletion.
    pub drop_progress: DiskKey,
    /// The level of `drop_progress`.
    pub drop_level: u8,
    /// Level of the root block.
    pub level: u8,
    /// Equal to `generation` if the following fields are valid.
    pub generation_v2: U64,
    /// Uuid of the subvolume.
    pub uuid: [u8; 16],
    /// Uuid of the subvolume that it is a snapshot of.
    pub parent_uuid: [u8; 16],
    /// Uuid of the subvolume that it was received from.
    pub received_uuid: [u8; 16],
    /// The transaction that last changed an inode.
    pub ctransid: U64,
    /// The transaction that made the subvolume.
    pub otransid: U64,
    /// The transaction that it was sent at.
    pub stransid: U64,
    /// The transaction that it was received at.
    pub rtransid: U64,
    /// Last change of an inode.
    pub ctime: Timespec,
    /// Creation.
    pub otime: Timespec,
    /// When it was sent.
    pub stime: Timespec,
    /// When it was received.
    pub rtime: Timespec,
    /// Zero.
    pub reserved: [U64; 8],
}

const _: () = assert!(size_of::<RootItem>() == 439);

impl RootItem {
    /// Reads a root item, also an old short one. Fields that an old kernel did not keep are zero.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut item = Self::new_zeroed();
        let len =
            if bytes.len() >= size_of::<Self>() { size_of::<Self>() } else { ROOT_ITEM_V0_SIZE };
        let stored = bytes.get(..len).ok_or(FormatError::TooShort {
            structure: "RootItem",
            needed: len,
            available: bytes.len(),
        })?;
        item.as_mut_bytes()[..len].copy_from_slice(stored);
        if item.generation_v2 != item.generation {
            item.as_mut_bytes()[ROOT_ITEM_V0_SIZE..].fill(0);
        }
        Ok(item)
    }

    /// Logical address of the root block.
    pub fn bytenr(&self) -> Logical {
        Logical(self.bytenr.get())
    }

    /// Whether the subvolume is read-only.
    pub fn is_read_only(&self) -> bool {
        self.flags.get() & ROOT_SUBVOL_RDONLY != 0
    }

    /// Uuid of the subvolume; nil when it has none.
    pub fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }

    /// Uuid of the subvolume that it is a snapshot of; nil for none.
    pub fn parent_uuid(&self) -> Uuid {
        Uuid::from_bytes(self.parent_uuid)
    }

    /// Uuid of the subvolume that it was received from; nil for none.
    pub fn received_uuid(&self) -> Uuid {
        Uuid::from_bytes(self.received_uuid)
    }
}

/// The part of a `ROOT_REF` or `ROOT_BACKREF` before the name (`struct btrfs_root_ref`, 18 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RootRefHeader {
    /// The directory that holds the name.
    pub dirid: U64,
    /// Index of the name in its directory.
    pub sequence: U64,
    /// Bytes of name.
    pub name_len: U16,
}

const _: () = assert!(size_of::<RootRefHeader>() == 18);

/// A subvolume's name in the subvolume that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootRef<'a> {
    /// The directory that holds the name.
    pub dirid: u64,
    /// Index of the name in its directory.
    pub sequence: u64,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> RootRef<'a> {
    /// Appends the item's data. The name is at most [`super::NAME_MAX`] bytes long.
    pub fn write(&self, out: &mut Vec<u8>) {
        let header = RootRefHeader {
            dirid: self.dirid.into(),
            sequence: self.sequence.into(),
            name_len: (self.name.len() as u16).into(),
        };
        out.extend(header.as_bytes());
        out.extend(self.name);
    }

    /// Reads a `ROOT_REF` or `ROOT_BACKREF` item that fills `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (header, name) = read_prefix::<RootRefHeader>(bytes)?;
        if name.len() != usize::from(header.name_len.get()) {
            return Err(FormatError::WrongSize {
                structure: "RootRef",
                needed: size_of::<RootRefHeader>() + usize::from(header.name_len.get()),
                available: bytes.len(),
            });
        }
        Ok(Self { dirid: header.dirid.get(), sequence: header.sequence.get(), name })
    }
}
