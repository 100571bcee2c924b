//! The numbers under which programs and the kernel know inodes.
//!
//! All subvolumes of a mount share one device number, so their inodes share one range of numbers. A
//! number follows from subvolume and inode alone: it is the same in every mount.
//!
//! | numbers | inodes |
//! | --- | --- |
//! | below 2^31, and from 2^32 to 2^51 | those of the top level, which keep their own numbers |
//! | from 2^31 to 2^32 | those of other subvolumes, while there are few: old programs of 32 bits know no others |
//! | from 2^51 on | directories that stand for a subvolume which is not there |
//! | from 3 * 2^50 on | a hash of what fits nowhere else |
//! | from 2^52 to 2^53 | all others: programs that count in floating point (JavaScript) know no others |

/// The top level, whose inodes keep their own numbers.
pub(super) const TOP_LEVEL: u64 = 5;
/// The first subvolume that a file system may have besides.
const FIRST_SUBVOLUME: u64 = 256;
/// Numbers of directories that stand for a subvolume which is not there begin here. Each gets the
/// next when it is seen.
pub(super) const STAND_INS: u64 = 1 << 51;
/// Hashed numbers begin here, and are so many.
const HASHED: u64 = 3 << 50;
const HASHED_BITS: u32 = 50;
/// The numbers that an inode of the top level keeps, in two ranges.
const KEPT_UP_TO: u64 = 1 << 31;
const KEPT_FROM: u64 = 1 << 32;

/// Numbers for pairs of a subvolume and an inode: a number has a one after as many zeros as `splits`
/// says, then bits for the subvolume, then those for the inode.
struct Pairs {
    first: u64,
    bits: u32,
    /// The bits for the subvolume, in the order of the zeros before.
    splits: &'static [u32],
}

/// Up to 63 subvolumes with 2^24 inodes, 1,023 with 2^19, or 16,383 with 2^14.
const FEW: Pairs = Pairs { first: 1 << 31, bits: 31, splits: &[6, 10, 14] };
const MANY: Pairs = Pairs { first: 1 << 52, bits: 52, splits: &[12, 20, 28, 36] };

impl Pairs {
    fn inode_bits(&self, zeros: u32, subvolume_bits: u32) -> u32 {
        self.bits - 1 - zeros - subvolume_bits
    }

    fn pack(&self, subvolume: u64, inode: u64) -> Option<u64> {
        (0_u32..).zip(self.splits).find_map(|(zeros, subvolume_bits)| {
            let inode_bits = self.inode_bits(zeros, *subvolume_bits);
            let fits = subvolume >> subvolume_bits == 0 && inode >> inode_bits == 0;
            let one = 1 << (self.bits - 1 - zeros);
            fits.then(|| self.first + (one | subvolume << inode_bits | inode))
        })
    }

    fn unpack(&self, number: u64) -> Option<(u64, u64)> {
        let packed = number.checked_sub(self.first).filter(|it| it >> self.bits == 0)?;
        let zeros = packed.leading_zeros() - (u64::BITS - self.bits);
        let subvolume_bits = *self.splits.get(zeros as usize)?;
        let inode_bits = self.inode_bits(zeros, subvolume_bits);
        let low = |value: u64, bits: u32| value & ((1 << bits) - 1);
        Some((low(packed >> inode_bits, subvolume_bits), low(packed, inode_bits)))
    }
}

/// Whether an inode of the top level keeps this number.
fn is_kept(inode: u64) -> bool {
    inode < KEPT_UP_TO || (KEPT_FROM..STAND_INS).contains(&inode)
}

/// The number of an inode.
pub(super) fn number_of(subvolume: u64, inode: u64) -> u64 {
    let index = match subvolume {
        TOP_LEVEL if is_kept(inode) => return inode,
        TOP_LEVEL => Some(0),
        _ => subvolume.checked_sub(FIRST_SUBVOLUME - 1),
    };
    let few = index.filter(|index| *index > 0).and_then(|index| FEW.pack(index, inode));
    let packed = few.or_else(|| MANY.pack(index?, inode));
    packed.unwrap_or_else(|| {
        // Any odd factor hashes without losing a bit. A collision is as likely as with random
        // numbers.
        let hash = subvolume.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) ^ inode;
        HASHED + (hash.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> (u64::BITS - HASHED_BITS))
    })
}

/// The subvolume and inode that have a number. `None` if the number does not tell.
pub(super) fn inode_of(number: u64) -> Option<(u64, u64)> {
    if is_kept(number) {
        return Some((TOP_LEVEL, number));
    }
    let (index, inode) = FEW.unpack(number).or_else(|| MANY.unpack(number))?;
    Some((if index == 0 { TOP_LEVEL } else { index + FIRST_SUBVOLUME - 1 }, inode))
}

/// Whether it is the number of a directory that stands for a subvolume.
pub(super) fn is_stand_in(number: u64) -> bool {
    (STAND_INS..HASHED).contains(&number)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_are_unique_across_subvolumes() {
        let powers = (0..48).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        let subvolumes = [TOP_LEVEL].into_iter().chain(powers.map(|it: u64| it + 256));
        let subvolumes: HashSet<u64> = subvolumes.collect();
        let inodes = (8..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        let inodes: HashSet<u64> = inodes.collect();
        let mut numbers = HashSet::new();
        for subvolume in &subvolumes {
            for inode in &inodes {
                let number = number_of(*subvolume, *inode);
                assert!(numbers.insert(number), "{subvolume} {inode}");
                assert!(number < 1 << 53 && !is_stand_in(number));
                let found = inode_of(number);
                let is_hashed = (HASHED..1 << 52).contains(&number);
                assert_eq!(found, (!is_hashed).then_some((*subvolume, *inode)));
            }
        }
    }

    #[test]
    fn programs_of_32_bits_know_the_inodes_of_few_subvolumes() {
        assert_eq!(number_of(TOP_LEVEL, 257), 257);
        for (subvolume, inode) in [(256, 1 << 23), (318, 256), (1_000, 1 << 18), (16_000, 16_000)] {
            let number = number_of(subvolume, inode);
            assert!((1 << 31..1 << 32).contains(&number), "{subvolume} {inode}: {number}");
            assert_eq!(inode_of(number), Some((subvolume, inode)));
        }
        // More than that, and what no rule covers.
        assert!(number_of(1 << 20, 1 << 20) >= 1 << 52);
        assert_eq!(inode_of(number_of(1 << 47, 1 << 60)), None);
        assert_eq!(inode_of(STAND_INS), None);
    }
}
