//! Recognizing incompressible data at a small part of the cost of compressing it.

/// Bytes sampled together, so that words and short records are complete.
const RUN_BYTES: usize = 64;

/// The most runs to sample, spread evenly over the data.
const MAX_RUNS: usize = 64;

/// Slots of the table of words: twice as many as words can be sampled.
const WORD_SLOTS: usize = 2 * MAX_RUNS * RUN_BYTES / size_of::<u64>();

/// Whether compressing the data might save space. Call it before
/// [`Compressor::compress`](super::Compressor::compress), unless compression is forced.
///
/// It samples at most 4 KiB, in runs of 64 bytes spread evenly, and returns true for either of two
/// reasons:
/// * Some bytes are commoner than others. The measure is how often two bytes of the sample are
///   equal: once in 256 pairs for noise, once in 16 or so for text. More than one and a quarter
///   times the rate of noise means yes: that is the rate of noise in which one byte in 28 has a
///   fixed value, which saves about one 4 KiB sector in 128 KiB.
/// * Words of eight bytes come back, if only one in sixteen. This finds noise that is stored twice,
///   whose bytes are all equally common.
///
/// Encrypted, random and well compressed data get a no. A wrong yes costs time, a wrong no costs
/// space; neither loses data.
pub fn is_worth_trying(data: &[u8]) -> bool {
    let mut counts = [0u64; 256];
    let mut seen = [0u64; WORD_SLOTS];
    let mut words = 0usize;
    let mut repeats = 0usize;
    for run in sample(data) {
        for &byte in run {
            counts[usize::from(byte)] += 1;
        }
        for word in run.as_chunks().0 {
            let word = u64::from_le_bytes(*word);
            let slot = &mut seen[slot_of(word)];
            repeats += usize::from(*slot == word);
            *slot = word;
            words += 1;
        }
    }
    let sampled: u64 = counts.iter().sum();
    let pairs = sampled * sampled.saturating_sub(1);
    let equal_pairs: u64 = counts.iter().map(|&count| count * count.saturating_sub(1)).sum();
    equal_pairs * 256 * 4 > pairs * 5 || (repeats > 0 && repeats * 16 >= words)
}

/// All of short data, else [`MAX_RUNS`] evenly spaced runs of it.
fn sample(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let stride = data.len().div_ceil(MAX_RUNS).next_multiple_of(RUN_BYTES).max(RUN_BYTES);
    data.chunks(stride).map(|part| &part[..part.len().min(RUN_BYTES)])
}

fn slot_of(word: u64) -> usize {
    const BITS: u32 = WORD_SLOTS.ilog2();
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::tests::noise;

    #[test]
    fn noise_is_not_worth_trying() {
        for len in [0, 1, 4096, 10_000, 128 * 1024] {
            assert!(!is_worth_trying(&noise(len as u64, len)), "{len} bytes");
        }
    }

    #[test]
    fn skewed_bytes_are_worth_trying() {
        let mut some_zeros = noise(1, 128 * 1024);
        some_zeros.iter_mut().step_by(16).for_each(|byte| *byte = 0);
        let text = b"A pound of flour, half of it for the crust. ".repeat(200);
        let counters: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
        for (name, data) in [("some zeros", &some_zeros), ("text", &text), ("counters", &counters)]
        {
            assert!(is_worth_trying(data), "{name}");
        }
        assert!(is_worth_trying(&[0; 4096]));
    }

    #[test]
    fn repeated_noise_is_worth_trying() {
        assert!(is_worth_trying(&noise(2, 16 * 1024).repeat(8)));
    }
}
