//! Ids of users and groups, as two systems know them.

use std::convert::Infallible;

use crate::xattr_ids::{self, XattrId};

/// Consecutive ids that stand for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first id outside: of a host.
    pub outer: u32,
    /// The first id inside: in a file system.
    pub inner: u32,
    /// How many there are.
    pub count: u32,
}

/// Ids outside a file system, and those that stand for them inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    ranges: Vec<IdRange>,
    /// The id for all that are in no range.
    squash: Option<u32>,
}

/// Why ranges are no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdMapError {
    /// A range has no ids, or some after the last possible one.
    #[error("ids {first} to {first} + {count} do not exist")]
    NoIds {
        /// The first id.
        first: u32,
        /// How many.
        count: u32,
    },
    /// An id is in two ranges.
    #[error("id {0} is mapped twice")]
    Twice(u32),
}

impl IdMap {
    /// A map of these ranges. An id in no range stays as it is, or becomes `squash`.
    ///
    /// # Errors
    /// If a range has no ids, or two have the same ones.
    pub fn new(ranges: Vec<IdRange>, squash: Option<u32>) -> Result<Self, IdMapError> {
        for (index, range) in ranges.iter().enumerate() {
            for first in [range.outer, range.inner] {
                // The greatest number stands for no id.
                if range.count == 0 || first.checked_add(range.count).is_none() {
                    return Err(IdMapError::NoIds { first, count: range.count });
                }
            }
            for other in &ranges[..index] {
                let both = [(range.outer, other.outer), (range.inner, other.inner)];
                for (one, two) in both {
                    let first = one.max(two);
                    if first < (one + range.count).min(two + other.count) {
                        return Err(IdMapError::Twice(first));
                    }
                }
            }
        }
        Ok(Self { ranges, squash })
    }

    /// A map that has no id on either side.
    pub fn of_nothing() -> Self {
        Self { ranges: vec![IdRange { outer: 0, inner: 0, count: 0 }], squash: None }
    }

    /// The id inside for one outside.
    pub fn inner(&self, outer: u32) -> u32 {
        self.mapped(outer).unwrap_or(outer)
    }

    /// As [`inner`](Self::inner), if ranges are given for all ids that both sides know: an id in
    /// none of them is nowhere, unless there are no ranges.
    pub fn inner_if_any(&self, outer: u32) -> Option<u32> {
        let stays = (self.ranges.is_empty() && self.squash.is_none()).then_some(outer);
        stays.or_else(|| self.mapped(outer))
    }

    fn mapped(&self, outer: u32) -> Option<u32> {
        let found = self.ranges.iter().find_map(|range| {
            let at = outer.checked_sub(range.outer).filter(|at| *at < range.count)?;
            Some(range.inner + at)
        });
        found.or(self.squash)
    }

    /// The map in the other direction.
    #[must_use]
    pub fn turned(&self) -> Self {
        let turn = |range: &IdRange| IdRange { outer: range.inner, inner: range.outer, ..*range };
        Self { ranges: self.ranges.iter().map(turn).collect(), squash: self.squash }
    }
}

/// Maps of users and of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerMap {
    /// Of users.
    pub users: IdMap,
    /// Of groups.
    pub groups: IdMap,
}

impl OwnerMap {
    /// Maps that have no id on either side.
    pub fn of_nothing() -> Self {
        Self { users: IdMap::of_nothing(), groups: IdMap::of_nothing() }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The maps in the other direction.
    #[must_use]
    pub fn turned(&self) -> Self {
        Self { users: self.users.turned(), groups: self.groups.turned() }
    }

    /// Maps the users and groups in the value of an extended attribute, if it has any.
    pub fn map_xattr(&self, name: &[u8], value: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        let mapped = xattr_ids::replace(name, value, |id| match id {
            XattrId::User(uid) | XattrId::Root(uid) => Ok(Some(self.users.inner(uid))),
            XattrId::Group(gid) => Ok::<_, Infallible>(Some(self.groups.inner(gid))),
        });
        let Ok(mapped) = mapped;
        *value = mapped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(outer: u32, inner: u32, count: u32) -> IdRange {
        IdRange { outer, inner, count }
    }

    #[test]
    fn ids_in_ranges_are_shifted() {
        let map = IdMap::new(vec![range(100_000, 0, 1000), range(5, 2000, 1)], None).unwrap();
        let seen = [100_000, 100_999, 101_000, 5, 6].map(|id| map.inner(id));
        assert_eq!(seen, [0, 999, 101_000, 2000, 6]);
        let back = [0, 999, 2000, 1000].map(|id| map.turned().inner(id));
        assert_eq!(back, [100_000, 100_999, 5, 1000]);
        let squash = IdMap::new(vec![range(0, 7, 1)], Some(9)).unwrap();
        assert_eq!([0, 1, 7].map(|id| squash.inner(id)), [7, 9, 9]);
    }

    #[test]
    fn ranges_that_make_no_map_are_refused() {
        let error = |ranges: &[IdRange]| IdMap::new(ranges.to_vec(), None).unwrap_err();
        assert!(matches!(error(&[range(0, 0, 0)]), IdMapError::NoIds { .. }));
        assert!(matches!(error(&[range(0, 5, u32::MAX)]), IdMapError::NoIds { .. }));
        assert_eq!(error(&[range(0, 10, 5), range(4, 100, 5)]), IdMapError::Twice(4));
        assert_eq!(error(&[range(0, 10, 5), range(50, 8, 5)]), IdMapError::Twice(10));
        assert!(IdMap::new(vec![range(0, 1, u32::MAX - 1)], None).is_ok());
    }

    #[test]
    fn ids_in_no_range_are_nowhere_if_asked_so() {
        let map = IdMap::new(vec![range(5, 2000, 1)], None).unwrap();
        assert_eq!([5, 6].map(|id| map.inner_if_any(id)), [Some(2000), None]);
        let squash = IdMap::new(vec![range(5, 2000, 1)], Some(9)).unwrap();
        assert_eq!([5, 6].map(|id| squash.inner_if_any(id)), [Some(2000), Some(9)]);
        assert_eq!(IdMap::default().inner_if_any(6), Some(6));
        let nothing = IdMap::of_nothing();
        for map in [&nothing, &nothing.turned()] {
            assert_eq!([0, 1, u32::MAX].map(|id| map.inner_if_any(id)), [None; 3]);
        }
    }

    #[test]
    fn users_and_groups_in_attributes_have_a_map_each() {
        let users = IdMap::new(vec![range(1, 11, 1)], None).unwrap();
        let groups = IdMap::new(vec![range(1, 21, 1)], None).unwrap();
        let map = OwnerMap { users, groups };
        let acl = |user: u32, group: u32| {
            let entry = |tag: u16, id: u32| {
                [&tag.to_le_bytes()[..], &7_u16.to_le_bytes(), &id.to_le_bytes()].concat()
            };
            [&[2, 0, 0, 0][..], &entry(1, 1), &entry(2, user), &entry(8, group)].concat()
        };
        let mut value = acl(1, 1);
        map.map_xattr(b"user.x", &mut value);
        assert_eq!(value, acl(1, 1));
        map.map_xattr(b"system.posix_acl_access", &mut value);
        assert_eq!(value, acl(11, 21));
    }
}
