//! What jobs there are, and which exclude each other.

use std::fmt;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobKind {
    /// Verifies what is on one device.
    Scrub {
        /// Id of the device.
        device: u64,
    },
    /// Adds a device.
    AddDevice,
    /// Moves everything on a device to the others.
    RemoveDevice {
        /// Id of the device.
        device: u64,
    },
    /// Moves what lies after the new end of a device.
    ResizeDevice {
        /// Id of the device.
        device: u64,
    },
    /// Gives block groups other profiles.
    Convert,
    /// Moves block groups.
    Balance,
    /// Gives block groups the copies that they lack.
    Complete,
    /// Copies everything on a device to another, which takes its place.
    ReplaceDevice {
        /// Id of the device.
        device: u64,
    },
}

impl JobKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scrub { .. } => "scrub",
            Self::AddDevice => "add",
            Self::RemoveDevice { .. } => "remove",
            Self::ResizeDevice { .. } => "resize",
            Self::ReplaceDevice { .. } => "replace",
            Self::Convert => "convert",
            Self::Balance => "balance",
            Self::Complete => "complete",
        }
    }

    /// Id of the device that it is about, if it is about one.
    pub fn device(self) -> Option<u64> {
        match self {
            Self::Scrub { device }
            | Self::RemoveDevice { device }
            | Self::ResizeDevice { device }
            | Self::ReplaceDevice { device } => Some(device),
            Self::AddDevice | Self::Convert | Self::Balance | Self::Complete => None,
        }
    }

    /// Whether it replaces a device.
    pub fn replaces(self) -> bool {
        matches!(self, Self::ReplaceDevice { .. })
    }

    /// Whether this job and another must not run at once. Places on devices get other content when
    /// chunks move, which a scrub would take for damage; adding a device moves none.
    pub(crate) fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Scrub { device }, Self::Scrub { device: others }) => device == others,
            (Self::Scrub { .. }, Self::AddDevice) | (Self::AddDevice, Self::Scrub { .. }) => false,
            _ => true,
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scrub { device } => write!(f, "scrub of device {device}"),
            Self::AddDevice => f.write_str("addition of a device"),
            Self::RemoveDevice { device } => write!(f, "removal of device {device}"),
            Self::ResizeDevice { device } => write!(f, "resize of device {device}"),
            Self::ReplaceDevice { device } => write!(f, "replace of device {device}"),
            Self::Complete => f.write_str("completion of copies"),
            Self::Convert => f.write_str("conversion to other profiles"),
            Self::Balance => f.write_str("balance"),
        }
    }
}
