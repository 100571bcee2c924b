//! The error type of this library.

use std::fmt;
use std::io;
use std::path::Path;

use larder_device::DeviceError;
use larder_filesystem::ErrorKind;
use larder_volume::{OpenError, ScanError, SuperblockProblem};
use rustix::io::Errno;

/// The result of this library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: a [kind](Self::kind) for programs, and a text for people that names the path, device
/// or item.
///
/// The text is complete; the sources have the same information in parts, as values.
pub struct Error {
    /// The path of the call, or the device that could not be opened.
    about: Option<String>,
    cause: Cause,
}

enum Cause {
    Filesystem(larder_filesystem::Error),
    Open(OpenError),
    Device(DeviceError),
    Mounted(io::Error),
}

impl Error {
    /// What the error means.
    pub fn kind(&self) -> ErrorKind {
        match &self.cause {
            Cause::Filesystem(error) => error.kind(),
            Cause::Open(error) => kind_of_opening(error),
            Cause::Device(error) => kind_of_device(error),
            Cause::Mounted(error) => kind_of_mounted(error),
        }
    }

    /// An answer of a mounted file system.
    pub(crate) fn of_mounted(error: io::Error) -> Self {
        Self { about: None, cause: Cause::Mounted(error) }
    }

    /// The error as a number of the operating system.
    pub fn errno(&self) -> i32 {
        let errno = match self.kind() {
            ErrorKind::NotFound => Errno::NOENT,
            ErrorKind::NotADirectory => Errno::NOTDIR,
            ErrorKind::IsADirectory => Errno::ISDIR,
            ErrorKind::InvalidInput => Errno::INVAL,
            ErrorKind::Loop => Errno::LOOP,
            ErrorKind::NameTooLong => Errno::NAMETOOLONG,
            ErrorKind::NoSuchAttribute => Errno::NODATA,
            ErrorKind::NoSuchPosition => Errno::NXIO,
            ErrorKind::AlreadyExists => Errno::EXIST,
            ErrorKind::DirectoryNotEmpty => Errno::NOTEMPTY,
            ErrorKind::TooManyLinks => Errno::MLINK,
            ErrorKind::Overflow => Errno::OVERFLOW,
            ErrorKind::ReadOnly => Errno::ROFS,
            ErrorKind::CrossSubvolume => Errno::XDEV,
            ErrorKind::NotPermitted => Errno::PERM,
            ErrorKind::FileTooLarge => Errno::FBIG,
            ErrorKind::NoSpace => Errno::NOSPC,
            ErrorKind::QuotaExceeded => Errno::DQUOT,
            ErrorKind::Corrupt => Errno::UCLEAN,
            ErrorKind::InUse => Errno::BUSY,
            ErrorKind::PermissionDenied => Errno::ACCESS,
            ErrorKind::Unsupported => Errno::OPNOTSUPP,
            _ => Errno::IO,
        };
        errno.raw_os_error()
    }

    /// The same error about `path`.
    pub(crate) fn about(self, path: &Path) -> Self {
        Self { about: Some(path.display().to_string()), ..self }
    }
}

fn kind_of_opening(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::NoDevices => ErrorKind::InvalidInput,
        OpenError::Feature(_) | OpenError::State(_) => ErrorKind::Unsupported,
        OpenError::Scan(error) => kind_of_scan(error),
        OpenError::MissingDevices(_) | OpenError::NotEnoughDevices { .. } => ErrorKind::NotFound,
        OpenError::DuplicateDevice { .. } | OpenError::ForeignDevice { .. } => {
            ErrorKind::InvalidInput
        }
        OpenError::ChunkTree(_) => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    }
}

fn kind_of_scan(error: &ScanError) -> ErrorKind {
    let failed = |problem| matches!(problem, Err(&SuperblockProblem::Device(_)));
    if error.copies.iter().any(|copy| failed(copy.state.as_ref())) {
        ErrorKind::Io
    } else {
        ErrorKind::Corrupt
    }
}

fn kind_of_device(error: &DeviceError) -> ErrorKind {
    match error {
        DeviceError::InUse { .. } => ErrorKind::InUse,
        DeviceError::Open { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            _ => ErrorKind::Io,
        },
        _ => ErrorKind::Io,
    }
}

fn kind_of_mounted(error: &io::Error) -> ErrorKind {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => ErrorKind::NotFound,
        Some(Errno::INVAL) => ErrorKind::InvalidInput,
        Some(Errno::PERM) => ErrorKind::NotPermitted,
        Some(Errno::ACCESS) => ErrorKind::PermissionDenied,
        Some(Errno::ROFS) => ErrorKind::ReadOnly,
        Some(Errno::DQUOT) => ErrorKind::QuotaExceeded,
        Some(Errno::NOSPC) => ErrorKind::NoSpace,
        Some(Errno::EXIST) => ErrorKind::AlreadyExists,
        Some(Errno::BUSY) => ErrorKind::InUse,
        Some(Errno::NOTEMPTY) => ErrorKind::DirectoryNotEmpty,
        _ if error.kind() == io::ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::Io,
    }
}

impl From<larder_filesystem::Error> for Error {
    fn from(error: larder_filesystem::Error) -> Self {
        Self { about: None, cause: Cause::Filesystem(error) }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Self { about: None, cause: Cause::Open(error) }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self { about: None, cause: Cause::Device(error) }
    }
}

impl From<Error> for io::Error {
    /// The system's kind of error, with the text of this one.
    fn from(error: Error) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(about) = &self.about {
            write!(f, "{about}: ")?;
        }
        match &self.cause {
            Cause::Filesystem(error) => error.fmt(f),
            Cause::Open(error) => error.fmt(f),
            Cause::Device(error) => error.fmt(f),
            Cause::Mounted(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Filesystem(error) => error.source(),
            Cause::Open(error) => error.source(),
            Cause::Device(error) => error.source(),
            Cause::Mounted(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_mounted_file_system_keeps_its_number() {
        for errno in [
            Errno::NOENT,
            Errno::INVAL,
            Errno::PERM,
            Errno::ACCESS,
            Errno::ROFS,
            Errno::DQUOT,
            Errno::NOSPC,
            Errno::EXIST,
            Errno::BUSY,
            Errno::NOTEMPTY,
            Errno::IO,
        ] {
            let number = errno.raw_os_error();
            let error = Error::of_mounted(io::Error::from_raw_os_error(number));
            assert_eq!(error.errno(), number, "{errno}");
        }
    }
}
