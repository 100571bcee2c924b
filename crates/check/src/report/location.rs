//! The location of a finding.

use std::fmt;

use larder_format::Key;
use serde::{Serialize, Serializer};

/// The location of a finding, as exactly as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// Id of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    /// Byte offset on that device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical: Option<u64>,
    /// Id of the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<u64>,
    /// Number of the inode in that tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Logical address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical: Option<u64>,
    /// Key of the item.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_key")]
    pub key: Option<Key>,
}

impl Location {
    /// The file system as a whole.
    pub(crate) const FILE_SYSTEM: Self =
        Self { device: None, physical: None, tree: None, inode: None, logical: None, key: None };

    pub(crate) fn device(device: u64) -> Self {
        Self { device: Some(device), ..Self::FILE_SYSTEM }
    }

    pub(crate) fn tree(tree: u64) -> Self {
        Self { tree: Some(tree), ..Self::FILE_SYSTEM }
    }

    pub(crate) fn logical(logical: u64) -> Self {
        Self { logical: Some(logical), ..Self::FILE_SYSTEM }
    }

    pub(crate) fn at_physical(self, physical: u64) -> Self {
        Self { physical: Some(physical), ..self }
    }

    pub(crate) fn at(self, logical: u64) -> Self {
        Self { logical: Some(logical), ..self }
    }

    pub(crate) fn key(self, key: Key) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(crate) fn inode(self, inode: u64) -> Self {
        Self { inode: Some(inode), ..self }
    }
}

#[expect(clippy::ref_option, reason = "serde passes the field by reference")]
fn serialize_key<S: Serializer>(key: &Option<Key>, serializer: S) -> Result<S::Ok, S::Error> {
    key.map(|key| key.to_string()).serialize(serializer)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut part = |name: &str, value: &dyn fmt::Display| {
            let written = write!(f, "{separator}{name} {value}");
            separator = ", ";
            written
        };
        if let Some(device) = self.device {
            part("device", &device)?;
        }
        if let Some(physical) = self.physical {
            part("offset", &physical)?;
        }
        if let Some(tree) = self.tree {
            part("tree", &(tree as i64))?;
        }
        if let Some(inode) = self.inode {
            part("inode", &inode)?;
        }
        if let Some(logical) = self.logical {
            part("logical", &logical)?;
        }
        if let Some(key) = self.key {
            part("key", &key)?;
        }
        if separator.is_empty() { f.write_str("file system") } else { Ok(()) }
    }
}
