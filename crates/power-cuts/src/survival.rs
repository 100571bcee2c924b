//! The fate of unflushed changes.

use larder_test_devices::{Entry, Survival};

use crate::superblock::torn;

/// The fate of each unflushed change in a cut, determined by `seed`. In some cuts all are lost and
/// in some all survive; in most of them a half survive, in any order, and a quarter are torn.
pub fn survival(seed: u64) -> impl FnMut(usize, &Entry) -> Survival {
    let mut random = Random(seed);
    let (temper, tear) = (random.below(8), random.below(9));
    move |_, entry| match (temper, random.below(4)) {
        (0, _) => Survival::Lost,
        (1, _) | (2.., 0 | 3) => Survival::Whole,
        (_, 1) => torn(entry, tear),
        _ => Survival::Lost,
    }
}

/// The generator SplitMix64: any seed will do.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_test_devices::Event;

    use super::*;

    #[test]
    fn cuts_are_of_all_kinds() {
        let entry = Entry { device: 0, event: Event::Write { offset: 0, data: Arc::from([1; 9]) } };
        let kinds = |seed| {
            let mut survival = survival(seed);
            let mut kinds = [false; 3];
            for number in 0..50 {
                kinds[match survival(number, &entry) {
                    Survival::Lost => 0,
                    Survival::Whole => 1,
                    Survival::Torn { .. } => 2,
                }] = true;
            }
            kinds
        };
        let seen: Vec<[bool; 3]> = (0..100).map(kinds).collect();
        for wanted in [[true, false, false], [false, true, false], [true, true, true]] {
            assert!(seen.contains(&wanted), "{wanted:?}");
        }
        assert_eq!(seen, (0..100).map(kinds).collect::<Vec<_>>(), "a seed determines all");
    }
}
