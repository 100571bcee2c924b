//! Why making a file system failed.

use std::io;
use std::path::PathBuf;

use larder_device::DeviceError;
use larder_format::Profile;
use larder_platform::errno::{self, in_words};
use larder_volume::WriteError;

/// An error of making a file system. Lengths are in bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// Options that are invalid by themselves or together.
    #[error("{0}")]
    InvalidOptions(String),

    /// The device holds something, and overwriting it was not asked for.
    #[error("{device} holds {content}, and overwriting it was not asked for")]
    Occupied {
        /// The device's name.
        device: String,
        /// The content found on it.
        content: String,
    },

    /// There is no such file, and its length is unknown.
    #[error("{device} does not exist, and no length was given to create it with")]
    NoLength {
        /// The name that was given.
        device: String,
    },

    /// The device cannot hold even an empty file system.
    #[error(
        "{device} has {len_bytes} bytes, too few for a usable file system: \
         with these options every device needs {needed_bytes}"
    )]
    TooSmall {
        /// The device's name.
        device: String,
        /// Its length.
        len_bytes: u64,
        /// The least length that would do.
        needed_bytes: u64,
    },

    /// A profile needs more devices than there are.
    #[error("profile {profile} needs at least {needed} devices, there are {given}")]
    TooFewDevices {
        /// The profile.
        profile: Profile,
        /// How many devices it needs.
        needed: usize,
        /// How many there are.
        given: usize,
    },

    /// The content does not fit the devices.
    #[error("the devices are too small for the content: no room for a {what} block group")]
    NoSpace {
        /// The purpose of the block group.
        what: &'static str,
    },

    /// The content could not be read.
    #[error("{}: {}", .path.display(), in_words(source))]
    Source {
        /// The unreadable file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// The content changed after its directory was read.
    #[error("{} changed while it was being copied: {change}", .path.display())]
    Changed {
        /// The changed file.
        path: PathBuf,
        /// The change.
        change: &'static str,
    },

    /// The file system with these options cannot store the content.
    #[error("{}: {problem}", .path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },

    /// The caller stopped it, through [`MkfsOptions::progress`](crate::MkfsOptions::progress).
    #[error("interrupted")]
    Interrupted,

    /// A device could not be opened, read or resized.
    #[error(transparent)]
    Device(#[from] DeviceError),

    /// The file system could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl MkfsError {
    /// The error as a number of the operating system.
    pub fn errno(&self) -> i32 {
        match self {
            Self::InvalidOptions(_) | Self::TooFewDevices { .. } => errno::EINVAL,
            Self::Occupied { .. } => errno::EEXIST,
            Self::NoLength { .. } => errno::ENOENT,
            Self::TooSmall { .. } | Self::NoSpace { .. } => errno::ENOSPC,
            Self::Changed { .. } => errno::EBUSY,
            Self::Interrupted => errno::EINTR,
            Self::Unsupported { .. } => errno::EOPNOTSUPP,
            Self::Write(_) => errno::EIO,
            Self::Device(error) => error.errno(),
            Self::Source { source, .. } => errno::of(source).unwrap_or(errno::EIO),
        }
    }

    /// An [`InvalidOptions`](Self::InvalidOptions).
    pub(crate) fn invalid(problem: impl Into<String>) -> Self {
        Self::InvalidOptions(problem.into())
    }

    /// A [`Source`](Self::Source) error, for use with `map_err`.
    pub(crate) fn source<E: Into<io::Error>>(
        path: impl FnOnce() -> PathBuf,
    ) -> impl FnOnce(E) -> Self {
        |source| Self::Source { path: path(), source: source.into() }
    }
}
