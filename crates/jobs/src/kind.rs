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
    /// Whether it replaces a device.
    pub fn replaces(self) -> bool {
        matches!(self, Self::ReplaceDevice { .. })
    }

    /// Whether this job and another must not run at once. Places on devices get other content when
    /// chunks move, which a scrub would take for damage.
    pub(crate) fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Scrub { device }, Self::Scrub { device: others }) => device == others,
            _ => true,
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scrub { device } => write!(f, "scrub of device {device}"),
            Self::RemoveDevice { device } => write!(f, "removal of device {device}"),
            Self::ResizeDevice { device } => write!(f, "resize of device {device}"),
            Self::ReplaceDevice { device } => write!(f, "replace of device {device}"),
            Self::Complete => f.write_str("completion of copies"),
            Self::Convert => f.write_str("conversion to other profiles"),
            Self::Balance => f.write_str("balance"),
        }
    }
}
