//! Checksums of data: an item covers consecutive sectors from its key's offset on.

use crate::checksum::ChecksumType;
use crate::error::FormatError;

/// The number of sectors that a checksum item of `len` bytes covers.
pub fn csum_count(len: usize, kind: ChecksumType) -> Result<usize, FormatError> {
    if len == 0 || !len.is_multiple_of(kind.size()) {
        let problem = format!("{len} bytes are no whole number of {kind} checksums");
        return Err(FormatError::invalid("checksum item", problem));
    }
    Ok(len / kind.size())
}
