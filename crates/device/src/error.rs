//! Errors of devices.

use std::fmt;
use std::io;

use larder_platform::errno::in_words;
use larder_platform::errno::{EBUSY, EIO, EROFS, of};

use crate::{Device, InUse};

/// The kinds of call on a [`Device`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Device::read_at`].
    Read,
    /// [`Device::write_at`] and [`Device::write_vectored_at`].
    Write,
    /// [`Device::flush`].
    Flush,
    /// [`Device::discard`].
    Discard,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        })
    }
}

/// An error of a device. Offsets and lengths are in bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device could not be opened or created.
    #[error("{device}: {}", in_words(source))]
    Open {
        /// The device's name.
        device: String,
        /// The system's error.
        source: io::Error,
    },

    /// The device was to be opened for writing, but it is in use.
    #[error("{device}: {by}")]
    InUse {
        /// The device's name.
        device: String,
        /// The use, and where it is.
        by: InUse,
    },

    /// The device's length could not be changed.
    #[error("{device}: setting its length to {len_bytes} bytes: {}", in_words(source))]
    Resize {
        /// The device's name.
        device: String,
        /// The wanted length.
        len_bytes: u64,
        /// The system's error.
        source: io::Error,
    },

    /// The system refused or failed a call.
    #[error("{device}: {operation} of {len_bytes} bytes at offset {offset}: {}", in_words(source))]
    Io {
        /// The device's name.
        device: String,
        /// The call that failed.
        operation: Operation,
        /// Where its range starts.
        offset: u64,
        /// How long its range is.
        len_bytes: u64,
        /// The system's error.
        source: io::Error,
    },

    /// The range does not lie within the device.
    #[error(
        "{device}: {operation} of {len_bytes} bytes at offset {offset} goes past the end \
         of the device at {device_len_bytes}"
    )]
    PastEnd {
        /// The device's name.
        device: String,
        /// The call that was refused.
        operation: Operation,
        /// Where its range starts.
        offset: u64,
        /// How long its range is.
        len_bytes: u64,
        /// How long the device is.
        device_len_bytes: u64,
    },

    /// A call that changes the device, on one opened for reading.
    #[error("{device}: {operation} on a device opened read-only")]
    ReadOnly {
        /// The device's name.
        device: String,
        /// The call that was refused.
        operation: Operation,
    },
}

impl DeviceError {
    /// The error as a number of the operating system.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Open { source, .. } | Self::Resize { source, .. } | Self::Io { source, .. } => {
                of(source).unwrap_or(EIO)
            }
            Self::InUse { .. } => EBUSY,
            Self::PastEnd { .. } => EIO,
            Self::ReadOnly { .. } => EROFS,
        }
    }

    /// An [`Io`](Self::Io) error of `device`.
    pub fn io(
        device: &dyn Device,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        source: impl Into<io::Error>,
    ) -> Self {
        let (device, source) = (device.name().to_owned(), source.into());
        Self::Io { device, operation, offset, len_bytes, source }
    }
}

/// Checks a call of `device` before it has any effect: the range lies within the device, and the
/// device is writable if the call changes it. For implementations of [`Device`].
///
/// # Errors
/// [`DeviceError::ReadOnly`] and [`DeviceError::PastEnd`].
pub fn check_call(
    device: &dyn Device,
    operation: Operation,
    offset: u64,
    len_bytes: u64,
) -> Result<(), DeviceError> {
    if operation != Operation::Read && !device.is_writable() {
        return Err(DeviceError::ReadOnly { device: device.name().to_owned(), operation });
    }
    let device_len_bytes = device.len_bytes();
    match offset.checked_add(len_bytes) {
        Some(end) if end <= device_len_bytes => Ok(()),
        _ => Err(DeviceError::PastEnd {
            device: device.name().to_owned(),
            operation,
            offset,
            len_bytes,
            device_len_bytes,
        }),
    }
}
