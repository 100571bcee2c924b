//! Sets of subvolumes, each stored once and named by a small number.

use std::collections::HashMap;

/// Number of a set; 0 is the empty one.
pub(crate) type SetId = u32;

/// Most members of all sets together. Thousands of snapshots, each changed a little, exceed it.
const MOST_MEMBERS: usize = 1 << 24;
/// Most members to visit, counting repeated sets too.
const MOST_STEPS: usize = 1 << 30;

/// All sets so far.
pub(crate) struct RootSets {
    sets: Vec<Box<[u64]>>,
    by_members: HashMap<Box<[u64]>, SetId>,
    unions: HashMap<(SetId, SetId), SetId>,
    members: usize,
    steps: usize,
}

/// There are too many different sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooMany;

impl RootSets {
    pub(crate) fn new() -> Self {
        Self {
            sets: vec![Box::default()],
            by_members: HashMap::from([(Box::default(), 0)]),
            unions: HashMap::new(),
            members: 0,
            steps: 0,
        }
    }

    /// The members of a set, ascending.
    pub(crate) fn members(&self, id: SetId) -> &[u64] {
        &self.sets[id as usize]
    }

    /// The set of one subvolume.
    pub(crate) fn single(&mut self, root: u64) -> Result<SetId, TooMany> {
        self.intern(vec![root])
    }

    /// The union of two sets.
    pub(crate) fn union(&mut self, a: SetId, b: SetId) -> Result<SetId, TooMany> {
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
        self.step(self.members(a).len() + self.members(b).len())?;
        let mut members = [self.members(a), self.members(b)].concat();
        members.sort_unstable();
        members.dedup();
        let id = self.intern(members)?;
        self.unions.insert(pair, id);
        Ok(id)
    }

    /// Counts members that are about to be visited.
    pub(crate) fn step(&mut self, members: usize) -> Result<(), TooMany> {
        self.steps = self.steps.saturating_add(members);
        if self.steps > MOST_STEPS { Err(TooMany) } else { Ok(()) }
    }

    fn intern(&mut self, members: Vec<u64>) -> Result<SetId, TooMany> {
        if let Some(id) = self.by_members.get(members.as_slice()) {
            return Ok(*id);
        }
        self.members += members.len();
        if self.members > MOST_MEMBERS {
            return Err(TooMany);
        }
        let id = self.sets.len() as SetId;
        let members: Box<[u64]> = members.into();
        self.sets.push(members.clone());
        self.by_members.insert(members, id);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_have_equal_numbers() {
        let mut sets = RootSets::new();
        let mut union = |roots: &[u64]| {
            roots.iter().fold(0, |set, root| {
                let single = sets.single(*root).expect("few");
                sets.union(set, single).expect("few")
            })
        };
        let (one, other) = (union(&[256, 5, 300]), union(&[300, 256, 5, 5]));
        assert_eq!(one, other);
        assert_eq!(sets.members(one), [5, 256, 300]);
    }
}
