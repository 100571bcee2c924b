//! The extents of an open file in memory: all threads look them up by point, and now and then
//! forget one where data is written, which the next reader adds again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use larder_range_index::RangeIndex;
use parking_lot::{Mutex, RwLock};

use crate::clock::{Run, below, rate};

/// Extents of the file.
const EXTENTS: u64 = 47_000;
/// Bytes of each.
const EXTENT_BYTES: u64 = 4 << 10;
/// One in so many operations forgets an extent.
const FORGOTTEN: u64 = 100;

/// The properties of an extent: its place, its form and its checksums.
#[derive(Clone)]
pub(crate) struct Known {
    place: [u64; 6],
    checksums: Option<Arc<[u8]>>,
}

/// A map of extents.
pub(crate) trait Extents: Sync + Default {
    const NAME: &'static str;

    fn get(&self, point: u64) -> Option<Known>;
    fn learn(&self, range: Range<u64>, known: Known);
    fn forget(&self, range: Range<u64>);
}

#[derive(Default)]
pub(crate) struct Index(RangeIndex<Known>);

impl Extents for Index {
    const NAME: &'static str = "range-index";

    fn get(&self, point: u64) -> Option<Known> {
        self.0.get(point).map(|(_, known)| known)
    }

    fn learn(&self, range: Range<u64>, known: Known) {
        let _ = self.0.insert(range, known);
    }

    fn forget(&self, range: Range<u64>) {
        self.0.remove(range.start);
    }
}

type Tree = BTreeMap<u64, (u64, Known)>;

fn find(tree: &Tree, point: u64) -> Option<Known> {
    let (_, (end, known)) = tree.range(..=point).next_back()?;
    (point < *end).then(|| known.clone())
}

#[derive(Default)]
pub(crate) struct Shared(RwLock<Tree>);

impl Extents for Shared {
    const NAME: &'static str = "RwLock<BTreeMap>";

    fn get(&self, point: u64) -> Option<Known> {
        find(&self.0.read(), point)
    }

    fn learn(&self, range: Range<u64>, known: Known) {
        self.0.write().insert(range.start, (range.end, known));
    }

    fn forget(&self, range: Range<u64>) {
        self.0.write().remove(&range.start);
    }
}

#[derive(Default)]
pub(crate) struct Exclusive(Mutex<Tree>);

impl Extents for Exclusive {
    const NAME: &'static str = "Mutex<BTreeMap>";

    fn get(&self, point: u64) -> Option<Known> {
        find(&self.0.lock(), point)
    }

    fn learn(&self, range: Range<u64>, known: Known) {
        self.0.lock().insert(range.start, (range.end, known));
    }

    fn forget(&self, range: Range<u64>) {
        self.0.lock().remove(&range.start);
    }
}

/// Looks up extents; adds missing ones.
pub(crate) fn extents<E: Extents>(run: Run) -> f64 {
    let extents = E::default();
    let learn = |number: u64| {
        let range = number * EXTENT_BYTES..(number + 1) * EXTENT_BYTES;
        let known = Known { place: [number; 6], checksums: Some(Arc::from([0; 4])) };
        extents.learn(range, known);
    };
    (0..EXTENTS).for_each(learn);
    rate(run, |_, mut random| {
        let (extents, learn) = (&extents, &learn);
        move || {
            let number = below(&mut random, EXTENTS);
            let point = number * EXTENT_BYTES + below(&mut random, EXTENT_BYTES);
            match extents.get(point) {
                Some(known) => drop(std::hint::black_box((known.place[0], known.checksums))),
                None => learn(number),
            }
            if below(&mut random, FORGOTTEN) == 0 {
                let start = below(&mut random, EXTENTS) * EXTENT_BYTES;
                extents.forget(start..start + EXTENT_BYTES);
            }
        }
    })
    .per_second
}
