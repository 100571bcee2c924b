//! The checksum of commands: CRC-32C as the kernel's `crc32c(0, …)` computes it, which begins at
//! zero and inverts nothing, neither at the start nor at the end.

use larder_format::crc32c;

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::raw(0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_a_kernel() {
        // `chmod` of the root to 755.
        let command = b"\x10\0\0\0\x12\0\0\0\0\0\x0f\0\0\0\x05\0\x08\0\xed\x01\0\0\0\0\0\0";
        assert_eq!(checksum(command), u32::from_le_bytes([0x59, 0x55, 0x75, 0x35]));
    }
}
