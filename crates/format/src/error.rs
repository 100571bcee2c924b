//! The errors of parsing, and the two functions that turn bytes into fixed-size structures.

use std::any::type_name;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// An error of parsing bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A structure reaches past the bytes that hold it.
    #[error("{structure} needs {needed} bytes but {available} are there")]
    TooShort {
        /// The structure being read.
        structure: &'static str,
        /// Bytes that it takes.
        needed: usize,
        /// Bytes that are left.
        available: usize,
    },
    /// A fixed-size structure is followed by extra bytes.
    #[error("{structure} takes {needed} bytes but the item has {available}")]
    WrongSize {
        /// The structure being read.
        structure: &'static str,
        /// Bytes that it takes.
        needed: usize,
        /// Bytes that there are.
        available: usize,
    },
    /// A field has an invalid value.
    #[error("{structure}: {problem}")]
    Invalid {
        /// The structure being read.
        structure: &'static str,
        /// The field, and why its value is invalid.
        problem: String,
    },
}

impl FormatError {
    /// An [`FormatError::Invalid`] for `structure`.
    pub fn invalid(structure: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { structure, problem: problem.into() }
    }
}

fn short_name<T: ?Sized>() -> &'static str {
    let name = type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}

/// Reads a `T` that must fill `bytes` exactly.
pub fn read_exact_item<T>(bytes: &[u8]) -> Result<&T, FormatError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    T::ref_from_bytes(bytes).map_err(|_| FormatError::WrongSize {
        structure: short_name::<T>(),
        needed: size_of::<T>(),
        available: bytes.len(),
    })
}

/// Reads a `T` from the start of `bytes` and returns it with what follows.
pub fn read_prefix<T>(bytes: &[u8]) -> Result<(&T, &[u8]), FormatError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    T::ref_from_prefix(bytes).map_err(|_| FormatError::TooShort {
        structure: short_name::<T>(),
        needed: size_of::<T>(),
        available: bytes.len(),
    })
}

/// Splits `len` bytes off `bytes`. The error names `structure`.
pub(crate) fn take<'a>(
    bytes: &'a [u8],
    len: usize,
    structure: &'static str,
) -> Result<(&'a [u8], &'a [u8]), FormatError> {
    bytes.split_at_checked(len).ok_or(FormatError::TooShort {
        structure,
        needed: len,
        available: bytes.len(),
    })
}
