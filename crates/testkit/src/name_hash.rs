//! Names of directory entries whose hashes collide, computed without searching.
//!
//! The hash of a name, the offset of its DIR_ITEM key, is CRC-32C with the start value 0xFFFFFFFE
//! and no final inversion. Reading four bytes maps the register one to one, so it can be run
//! backwards: any beginning has exactly one ending of four bytes that gives the wanted hash.

const POLYNOMIAL_REFLECTED: u32 = 0x82F6_3B78;
const NAME_SEED: u32 = 0xFFFF_FFFE;

/// The hash of the directory entry `name` in btrfs.
pub fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(NAME_SEED, |register, &byte| {
        (0..8).fold(register ^ u32::from(byte), |register, _| step(register))
    })
}

/// The one name that starts with `beginning`, is four bytes longer and has the hash `hash`.
///
/// `None` if it contains `/` or NUL: try another beginning.
pub fn name_with_hash(beginning: &[u8], hash: u32) -> Option<Vec<u8>> {
    let before = (0..32).fold(hash, |register, _| step_back(register));
    let ending = (before ^ name_hash(beginning)).to_le_bytes();
    let possible = ending.iter().all(|&byte| byte != 0 && byte != b'/');
    possible.then(|| [beginning, &ending].concat())
}

/// `count` different names, each starting with `beginning`, that all have the hash `hash`.
///
/// Each has 16 bytes more than `beginning`; panics if that is longer than a name may be.
pub fn colliding_names(beginning: &[u8], hash: u32, count: usize) -> Vec<Vec<u8>> {
    assert!(beginning.len() + 16 <= 255, "a name has at most 255 bytes");
    (0_u64..)
        .filter_map(|n| {
            let numbered = [beginning, format!("{n:012x}").as_bytes()].concat();
            name_with_hash(&numbered, hash)
        })
        .take(count)
        .collect()
}

fn step(register: u32) -> u32 {
    (register >> 1) ^ if register & 1 == 1 { POLYNOMIAL_REFLECTED } else { 0 }
}

/// Undoes [`step`]: the polynomial's top bit is set, so the top bit tells whether it was applied.
fn step_back(register: u32) -> u32 {
    if register >> 31 == 1 { ((register ^ POLYNOMIAL_REFLECTED) << 1) | 1 } else { register << 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_the_default_subvolume_has_its_well_known_hash() {
        // DIR_ITEM key of "default" in the root tree of every btrfs.
        assert_eq!(name_hash(b"default"), 2_378_154_706);
    }

    #[test]
    fn colliding_names_are_different_names_of_one_hash() {
        let names = colliding_names(b"collision-", 0xDEAD_BEEF, 100);
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), 100);
        for name in &names {
            assert_eq!(name_hash(name), 0xDEAD_BEEF);
            assert!(name.starts_with(b"collision-") && name.len() == 26);
            assert!(!name.contains(&0) && !name.contains(&b'/'));
        }
    }
}
