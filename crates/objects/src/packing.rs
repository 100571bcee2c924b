//! Packed content.
//!
//! What packs and unpacks has hundreds of KiB of memory, and to get that from the system takes longer
//! than the work on a little content. So a few of them stay, for all threads.

use std::io;

use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};

/// How hard content is packed.
const LEVEL: i32 = 1;

/// So many of each kind stay while no thread uses them.
const MOST_KEPT: usize = 4;

static PACKERS: Mutex<Vec<Compressor<'static>>> = Mutex::new(Vec::new());
static UNPACKERS: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());

pub(crate) fn pack(content: &[u8]) -> io::Result<Vec<u8>> {
    with(&PACKERS, || Compressor::new(LEVEL), |packer| packer.compress(content))
}

/// Unpacks what is `len` bytes long at most.
pub(crate) fn unpack(packed: &[u8], len: usize) -> io::Result<Vec<u8>> {
    with(&UNPACKERS, Decompressor::new, |unpacker| unpacker.decompress(packed, len))
}

fn with<P, T>(
    kept: &Mutex<Vec<P>>,
    new: impl FnOnce() -> io::Result<P>,
    work: impl FnOnce(&mut P) -> io::Result<T>,
) -> io::Result<T> {
    let free = kept.lock().pop();
    let mut one = free.map_or_else(new, Ok)?;
    let result = work(&mut one);
    let mut kept = kept.lock();
    if kept.len() < MOST_KEPT {
        kept.push(one);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_unpacked_spoils_nothing_for_others() {
        let content = [7; 1000];
        let packed = pack(&content).unwrap();
        for _ in 0..3 {
            assert!(unpack(&packed[..packed.len() - 1], 1000).is_err());
            assert!(unpack(&packed, 999).is_err());
            assert!(unpack(&[1; 100], 1000).is_err());
            assert_eq!(unpack(&packed, 1000).unwrap(), content);
            assert_eq!(pack(&content).unwrap(), packed);
        }
    }
}
