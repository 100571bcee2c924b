//! CRC-32C without the inversions that are usual at its start and end: what name hashes and the
//! commands of send streams use.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `data` from the register value `seed`, with no inversion at either end.
pub fn raw(seed: u32, data: &[u8]) -> u32 {
    let mut register = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    register.update(data);
    register.get_state() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_give_what_the_whole_gives() {
        assert_eq!(!raw(!0, b"123456789"), 0xe306_9283);
        assert_eq!(raw(raw(!0, b"1234"), b"56789"), raw(!0, b"123456789"));
    }

    #[test]
    fn without_inversion_leading_zeros_have_no_effect() {
        assert_eq!(raw(0, b""), 0);
        assert_eq!(raw(0, &[0; 9]), 0);
        assert_eq!(raw(0, b"\0\0bread"), raw(0, b"bread"));
    }
}
