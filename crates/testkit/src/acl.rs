//! Access control lists in the form of system calls.

/// The value of `system.posix_acl_access` or `_default` (`struct posix_acl_xattr_header` and its
/// entries) with these entries of tag, permissions and id, valid or not.
pub fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}
