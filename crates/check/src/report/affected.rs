//! What a finding touches.

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
    /// A path from the top of the file system, without what a terminal would obey; `None` if no names
    /// lead to it.
    pub path: Option<String>,
}

impl fmt::Display for AffectedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subvolume, inode, path } = self;
        match path {
            Some(path) => write!(f, "in {path}")?,
            None => f.write_str("in what no path leads to")?,
        }
        match inode {
            Some(inode) => write!(f, " (subvolume {subvolume}, inode {inode})"),
            None => write!(f, " (subvolume {subvolume})"),
        }
    }
}

/// A place on a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DevicePlace {
    /// What the device is called: its path, or that it is missing.
    pub device: String,
    /// Its id in the file system.
    pub devid: u64,
    /// The byte on it, if the finding is about a certain one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

impl fmt::Display for DevicePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {}", self.device)?;
        self.offset.map_or(Ok(()), |offset| write!(f, " at byte {offset}"))
    }
}
