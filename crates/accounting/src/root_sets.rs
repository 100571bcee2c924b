//! Sets of trees, each stored once and named by a small number.
//!
//! A set is a list of runs of successive numbers. Trees are numbered so that a block is mostly in
//! successive ones, from the snapshot after it was written to the one before it was replaced: a set
//! has one or two runs, however many snapshots there are.

use std::collections::HashMap;

use larder_filesystem::{Error, Result};
use std::rc::Rc;

/// Number of a set; 0 is the empty one.
pub(crate) type SetId = u32;

/// Successive numbers: the first and the last.
type Run = (u32, u32);

/// Most runs of all sets together: 128 MiB.
const MOST_RUNS: usize = 1 << 24;
/// Most unions that are remembered; then all are forgotten.
const MOST_UNIONS: usize = 1 << 20;

/// All sets so far.
pub(crate) struct RootSets {
    sets: Vec<Rc<[Run]>>,
    by_runs: HashMap<Rc<[Run]>, SetId>,
    unions: HashMap<(SetId, SetId), SetId>,
    runs: usize,
}

impl Default for RootSets {
    fn default() -> Self {
        let empty: Rc<[Run]> = Rc::default();
        let by_runs = HashMap::from([(empty.clone(), 0)]);
        Self { sets: vec![empty], by_runs, unions: HashMap::new(), runs: 0 }
    }
}

impl RootSets {
    /// How many sets there are.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    /// The runs of a set, ascending and not touching each other.
    pub(crate) fn runs(&self, id: SetId) -> &[Run] {
        &self.sets[id as usize]
    }

    /// The numbers in a set, ascending.
    pub(crate) fn members(&self, id: SetId) -> impl Iterator<Item = u32> {
        self.runs(id).iter().flat_map(|(first, last)| *first..=*last)
    }

    /// The only number in the set, if it has one.
    pub(crate) fn only(&self, id: SetId) -> Option<u32> {
        match *self.runs(id) {
            [(first, last)] if first == last => Some(first),
            _ => None,
        }
    }

    /// How many numbers of a set are below `end`.
    pub(crate) fn count_below(&self, id: SetId, end: u32) -> u64 {
        let below = |(first, last): &Run| u64::from((last + 1).min(end).saturating_sub(*first));
        self.runs(id).iter().map(below).sum()
    }

    /// The set of one number.
    pub(crate) fn single(&mut self, number: u32) -> Result<SetId> {
        self.intern(vec![(number, number)])
    }

    /// The union of two sets.
    pub(crate) fn union(&mut self, a: SetId, b: SetId) -> Result<SetId> {
        if a == b || b == 0 {
            return Ok(a);
        }
        if a == 0 {
            return Ok(b);
        }
        let pair = (a.min(b), a.max(b));
        if let Some(id) = self.unions.get(&pair) {
            return Ok(*id);
        }
        let mut runs = [self.runs(a), self.runs(b)].concat();
        runs.sort_unstable();
        let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
        for (first, last) in runs {
            match merged.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        let id = self.intern(merged)?;
        if self.unions.len() == MOST_UNIONS {
            self.unions.clear();
        }
        self.unions.insert(pair, id);
        Ok(id)
    }

    fn intern(&mut self, runs: Vec<Run>) -> Result<SetId> {
        if let Some(id) = self.by_runs.get(runs.as_slice()) {
            return Ok(*id);
        }
        self.runs += runs.len();
        if self.runs > MOST_RUNS {
            return Err(Error::TooEntangled);
        }
        let id = self.sets.len() as SetId;
        let runs: Rc<[Run]> = runs.into();
        self.sets.push(runs.clone());
        self.by_runs.insert(runs, id);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_have_equal_numbers() {
        let mut sets = RootSets::default();
        let mut union = |numbers: &[u32]| {
            numbers.iter().fold(0, |set, number| {
                let single = sets.single(*number).expect("few");
                sets.union(set, single).expect("few")
            })
        };
        let (one, other) = (union(&[7, 1, 2, 9, 8]), union(&[1, 7, 8, 9, 2, 2]));
        assert_eq!(one, other);
        assert_eq!(sets.runs(one), [(1, 2), (7, 9)]);
        assert_eq!(sets.members(one).collect::<Vec<_>>(), [1, 2, 7, 8, 9]);
        assert_eq!((sets.count_below(one, 8), sets.count_below(one, 1)), (3, 0));
        assert_eq!(sets.only(one), None);
        let single = sets.single(4).expect("few");
        assert_eq!(sets.only(single), Some(4));
    }
}
