//! What has properties: an inode, in an image or in a mounted file system.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::ensure;
use larder::{ErrorKind, FileType, Inode, Timestamp, Uuid, XattrMode};

/// The attribute that keeps the compression.
pub const COMPRESSION: &str = "btrfs.compression";

/// Id of the top level.
pub const TOP_LEVEL: u64 = 5;

/// An inode that can have properties, in an image or in a mounted file system.
pub trait Bearer {
    fn is_subvolume_root(&self) -> bool;
    fn is_in_top_level(&self) -> bool;
    /// Whether it is a regular file or a directory.
    fn has_data(&self) -> bool;
    /// The flags of the subvolume whose root it is.
    fn subvolume(&self) -> anyhow::Result<State>;
    fn set_read_only(&self, is_read_only: bool) -> anyhow::Result<()>;
    /// Removes the uuid that the subvolume was received from: it differs from that one now.
    fn forget_received(&self) -> anyhow::Result<()>;
    fn label(&self) -> anyhow::Result<OsString>;
    fn set_label(&self, label: &OsStr) -> anyhow::Result<()>;
    fn compression(&self) -> anyhow::Result<Option<OsString>>;
    fn set_compression(&self, compression: &OsStr) -> anyhow::Result<()>;
}

/// The flags of a subvolume, as far as properties need them.
pub struct State {
    pub is_read_only: bool,
    pub is_received: bool,
}

impl Bearer for Inode {
    fn is_subvolume_root(&self) -> bool {
        self.is_subvolume_root()
    }

    fn is_in_top_level(&self) -> bool {
        self.subvolume_id() == TOP_LEVEL
    }

    fn has_data(&self) -> bool {
        matches!(self.file_type(), FileType::Regular | FileType::Directory)
    }

    fn subvolume(&self) -> anyhow::Result<State> {
        ensure!(self.is_subvolume_root(), "no subvolume");
        let info = self.subvolume().info()?;
        let is_received = !info.received_uuid.is_nil();
        Ok(State { is_read_only: info.is_read_only, is_received })
    }

    fn set_read_only(&self, is_read_only: bool) -> anyhow::Result<()> {
        Ok(self.subvolume().set_read_only(is_read_only)?)
    }

    fn forget_received(&self) -> anyhow::Result<()> {
        self.subvolume().set_received(Uuid::nil(), 0, Timestamp::default())?;
        Ok(())
    }

    fn label(&self) -> anyhow::Result<OsString> {
        Ok(self.subvolume().filesystem().label())
    }

    fn set_label(&self, label: &OsStr) -> anyhow::Result<()> {
        Ok(self.subvolume().filesystem().set_label(label)?)
    }

    fn compression(&self) -> anyhow::Result<Option<OsString>> {
        match self.xattr(COMPRESSION) {
            Err(error) if error.kind() == ErrorKind::NoSuchAttribute => Ok(None),
            value => Ok(Some(OsStr::from_bytes(&value?).to_owned())),
        }
    }

    fn set_compression(&self, compression: &OsStr) -> anyhow::Result<()> {
        Ok(self.set_xattr(COMPRESSION, compression.as_bytes(), XattrMode::Any)?)
    }
}
