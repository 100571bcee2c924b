//! Hashes that appear in keys. All are CRC-32C without the usual final inversion.

use crate::crc32c;

/// Key offset of the `DIR_ITEM` or `XATTR_ITEM` for `name`.
pub fn dir_name(name: &[u8]) -> u64 {
    u64::from(crc32c::raw(!1, name))
}

/// Key offset of the `INODE_EXTREF` for `name` in the directory `parent`.
pub fn extended_ref(parent: u64, name: &[u8]) -> u64 {
    u64::from(crc32c::raw(parent as u32, name))
}

/// Key offset of a keyed `EXTENT_DATA_REF`, and the order of inline ones.
pub fn extent_data_ref(root: u64, inode: u64, offset: u64) -> u64 {
    let high = crc32c::raw(!0, &root.to_le_bytes());
    let low = crc32c::raw(crc32c::raw(!0, &inode.to_le_bytes()), &offset.to_le_bytes());
    (u64::from(high) << 31) ^ u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // The "default" entry of the root tree's directory has this key on every btrfs.
        assert_eq!(dir_name(b"default"), 2_378_154_706);
    }
}
