//! Numbers and bytes that are the same in every run and with every version of every dependency.

/// SplitMix64: one word of state, good enough to fill files.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Bytes that no algorithm compresses.
    pub(crate) fn incompressible(&mut self, len_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len_bytes + 8);
        while bytes.len() < len_bytes {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len_bytes);
        bytes
    }

    /// Bytes that look like text and shrink to about a third.
    pub(crate) fn compressible(&mut self, len_bytes: usize) -> Vec<u8> {
        const WORDS: [&str; 16] = [
            "bread", "butter", "salt", "honey", "barley", "oats", "lentils", "plums", "vinegar",
            "mustard", "cheese", "apples", "walnuts", "thyme", "onions", "rye",
        ];
        let mut bytes = Vec::with_capacity(len_bytes + 16);
        while bytes.len() < len_bytes {
            let mut choice = self.next();
            for _ in 0..12 {
                bytes.extend_from_slice(WORDS[(choice % 16) as usize].as_bytes());
                bytes.push(b' ');
                choice >>= 4;
            }
            bytes.push(b'\n');
        }
        bytes.truncate(len_bytes);
        bytes
    }
}
