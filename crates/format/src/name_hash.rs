//! Hashes that appear in keys. All are CRC-32C without the usual final inversion.

/// CRC-32C of `data` from the register value `seed`, with no inversion at either end.
fn raw_crc32c(seed: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, data)
}

/// Key offset of the `DIR_ITEM` or `XATTR_ITEM` for `name`.
pub fn dir_name(name: &[u8]) -> u64 {
    u64::from(raw_crc32c(!1, name))
}

/// Key offset of the `INODE_EXTREF` for `name` in the directory `parent`.
pub fn extended_ref(parent: u64, name: &[u8]) -> u64 {
    u64::from(raw_crc32c(parent as u32, name))
}

/// Key offset of a keyed `EXTENT_DATA_REF`, and the order of inline ones.
pub fn extent_data_ref(root: u64, inode: u64, offset: u64) -> u64 {
    let high = raw_crc32c(!0, &root.to_le_bytes());
    let low = raw_crc32c(raw_crc32c(!0, &inode.to_le_bytes()), &offset.to_le_bytes());
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
