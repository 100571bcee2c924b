//! The files and places on devices of a finding.

use std::fmt;

use serde::Serialize;

/// A file that a finding touches, or a subvolume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct AffectedFile {
    /// Id of the subvolume.
    pub subvolume: u64,
    /// Number of the inode; `None` for the subvolume as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// A path from the top of the file system, without control characters; `None` if no names lead
    /// to it.
    pub path: Option<String>,
}

impl fmt::Display for AffectedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subvolume, inode, path } = self;
        match path {
            Some(path) => write!(f, "in {path}")?,
            None => f.write_str("in a file without a path")?,
        }
        match inode {
            Some(inode) => write!(f, " (subvolume {subvolume}, inode {inode})"),
            None => write!(f, " (subvolume {subvolume})"),
        }
    }
}

/// A location on a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DeviceOffset {
    /// The name of the device: its path, or a note that it is missing.
    pub device: String,
    /// Its id in the file system.
    pub devid: u64,
    /// The offset in bytes, if the finding is about a certain byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

impl fmt::Display for DeviceOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {}", self.device)?;
        self.offset.map_or(Ok(()), |offset| write!(f, " at byte {offset}"))
    }
}
