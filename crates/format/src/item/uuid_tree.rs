//! The uuid tree: from uuids to subvolumes.

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::Uuid;
use crate::error::FormatError;
use crate::key::{ItemType, Key};

/// The key of the items for `uuid`; `item_type` is one of `UUID_KEY_*`.
pub fn uuid_key(uuid: Uuid, item_type: ItemType) -> Key {
    let (first, last) = uuid.as_bytes().split_at(8);
    let number = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("half of 16 bytes"));
    Key::new(number(first), item_type, number(last))
}

/// The subvolume ids in an item of the uuid tree.
pub fn uuid_items(bytes: &[u8]) -> Result<&[U64], FormatError> {
    <[U64]>::ref_from_bytes(bytes).map_err(|_| {
        let problem = format!("{} bytes are no whole number of ids", bytes.len());
        FormatError::invalid("uuid item", problem)
    })
}
