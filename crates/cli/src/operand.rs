//! Ids, addresses and UUIDs as operands: a message names an operand that cannot be read.

use std::num::{IntErrorKind, ParseIntError};

use larder::Uuid;

/// Reads a number without a sign.
pub fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => format!("'{text}' is more than {}", u64::MAX),
        _ => format!("'{text}' is not a number"),
    })
}

/// Reads a UUID as `larder subvolume show` prints it.
pub fn parse_uuid(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| format!("'{text}' is not a uuid"))
}
