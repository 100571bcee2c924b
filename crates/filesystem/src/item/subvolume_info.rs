//! What root items and references say about a subvolume.

use larder_format::item::{RootItem, RootRef};
use larder_format::{FormatError, Key, Uuid, objectid};

use crate::error::Result;
use crate::item::metadata::Timestamp;

/// A subvolume as its root item describes it (`struct btrfs_root_item`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubvolumeInfo {
    /// Its id.
    pub id: u64,
    /// Its name; `None` for the top level, and for one that is being deleted.
    pub name: Option<SubvolumeName>,
    /// Its UUID; nil for the top level of an old file system.
    pub uuid: Uuid,
    /// The UUID of the subvolume that it is a snapshot of; nil if it is none.
    pub parent_uuid: Uuid,
    /// The UUID of the subvolume that it was received from; nil if it was not received.
    pub received_uuid: Uuid,
    /// The transaction that last changed its tree.
    pub generation: u64,
    /// The transaction that last changed an inode.
    pub change_generation: u64,
    /// The transaction that created it.
    pub creation_generation: u64,
    /// The transaction of the sent subvolume on the sender's side.
    pub send_generation: u64,
    /// The transaction that received it.
    pub receive_generation: u64,
    /// The transaction in which a snapshot of it was last taken.
    pub last_snapshot_generation: u64,
    /// Last change of an inode.
    pub change_time: Timestamp,
    /// Creation.
    pub creation_time: Timestamp,
    /// When it was sent.
    pub send_time: Timestamp,
    /// When it was received.
    pub receive_time: Timestamp,
    /// Whether it is read-only.
    pub is_read_only: bool,
    /// Whether it was made as a snapshot.
    pub is_snapshot: bool,
    /// Whether it is being deleted: only this description is left of it.
    pub is_being_deleted: bool,
    /// The flags of the root item.
    pub flags: u64,
    /// Bytes of its tree's blocks.
    pub tree_bytes: u64,
}

/// The name of a subvolume (`struct btrfs_root_ref`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeName {
    /// The subvolume that holds the name.
    pub parent: u64,
    /// The directory in it.
    pub directory: u64,
    /// Index of the name in the directory.
    pub index: u64,
    /// The name.
    pub name: Vec<u8>,
}

impl SubvolumeInfo {
    /// Whether it is the top level, which is not in any other subvolume.
    pub fn is_top_level(&self) -> bool {
        self.id == objectid::FS_TREE
    }

    pub(crate) fn new(
        id: u64,
        item: &RootItem,
        snapshot_generation: u64,
        name: Option<SubvolumeName>,
    ) -> Self {
        Self {
            id,
            name,
            uuid: item.uuid(),
            parent_uuid: item.parent_uuid(),
            received_uuid: item.received_uuid(),
            generation: item.generation.get(),
            change_generation: item.ctransid.get(),
            creation_generation: item.otransid.get(),
            send_generation: item.stransid.get(),
            receive_generation: item.rtransid.get(),
            last_snapshot_generation: item.last_snapshot.get(),
            change_time: item.ctime.into(),
            creation_time: item.otime.into(),
            send_time: item.stime.into(),
            receive_time: item.rtime.into(),
            is_read_only: item.is_read_only(),
            is_snapshot: snapshot_generation != 0,
            is_being_deleted: item.refs.get() == 0,
            flags: item.flags.get(),
            tree_bytes: item.bytes_used.get(),
        }
    }
}

impl SubvolumeName {
    /// Reads a `ROOT_BACKREF`, whose key's offset is the parent.
    pub(crate) fn parse(key: Key, bytes: &[u8]) -> Result<Self, FormatError> {
        let root_ref = RootRef::parse(bytes)?;
        Ok(Self {
            parent: key.offset,
            directory: root_ref.dirid,
            index: root_ref.sequence,
            name: root_ref.name.to_vec(),
        })
    }
}
