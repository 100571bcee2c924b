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
}

impl JobKind {
    /// Whether this job and another must not run at once.
    pub(crate) fn excludes(self, other: Self) -> bool {
        let Self::Scrub { device } = self;
        let Self::Scrub { device: others } = other;
        device == others
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scrub { device } => write!(f, "scrub of device {device}"),
        }
    }
}
