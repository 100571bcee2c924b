//! Lists of entries in the order of their keys, cut into nodes.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::codec::{Decoder, Encoder, Identity, Malformed};
use crate::each::each;
use crate::error::ObjectsError;
use crate::fetch::fetch;
use crate::id::{Kind, ObjectId};
use crate::store::Store;

/// The most entries of a node: they take 8 KiB as a rule.
const MOST_ENTRIES: usize = 512;

/// An entry of a list.
pub(crate) trait Listed: Copy + PartialEq + Send + Sync {
    fn key(&self) -> u64;

    /// All but the key.
    fn encode(&self, to: &mut Encoder);

    fn decode(key: u64, from: &mut Decoder<'_>) -> Result<Self, Malformed>;
}

/// What tells a part of a map object from all others: the object's id, and where the part begins.
pub(crate) fn identity(object: ObjectId, offset: u64) -> Identity {
    [object.raw(), offset]
}

/// A node: it has the entries from the key `first` to that of the next node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeRef {
    pub(crate) first: u64,
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl NodeRef {
    pub(crate) fn encode_all(nodes: &[Self], to: &mut Encoder) {
        let mut last = 0;
        to.list(nodes, |to, node| {
            to.number(node.first - last);
            last = node.first;
            to.number(node.object.raw());
            to.number(node.offset);
            to.number(node.len);
        });
    }

    pub(crate) fn decode_all(from: &mut Decoder<'_>) -> Result<Vec<Self>, Malformed> {
        let mut last = 0_u64;
        let nodes = from.list(|from| {
            last = last.wrapping_add(from.number()?);
            let object = ObjectId::from_raw(from.number()?);
            Ok(Self { first: last, object, offset: from.number()?, len: from.number()? })
        })?;
        check_order(&nodes, |node| node.first)?;
        Ok(nodes)
    }

    /// What tells it from all other parts of map objects.
    pub(crate) fn identity(&self) -> Identity {
        identity(self.object, self.offset)
    }

    /// Reads the node's entries.
    pub(crate) fn read<T: Listed>(&self, store: &dyn Store) -> Result<Vec<T>, ObjectsError> {
        let range = self.offset..self.offset.saturating_add(self.len);
        fetch(store, &Kind::Map.name(self.object), range, |bytes| decode(bytes, self.identity()))
    }
}

fn check_order<T>(items: &[T], key: impl Fn(&T) -> u64) -> Result<(), Malformed> {
    let is_sorted = items.is_sorted_by(|one, other| key(one) < key(other));
    if is_sorted { Ok(()) } else { Err(Malformed("a list in it is out of order")) }
}

fn encode<T: Listed>(entries: &[T], identity: Identity) -> Vec<u8> {
    let mut to = Encoder::default();
    let mut last = 0;
    to.list(entries, |to, entry| {
        to.number(entry.key() - last);
        last = entry.key();
        entry.encode(to);
    });
    to.sealed_as(identity)
}

pub(crate) fn decode<T: Listed>(bytes: &[u8], identity: Identity) -> Result<Vec<T>, Malformed> {
    let mut from = Decoder::unsealed_as(bytes, identity)?;
    let mut last = 0_u64;
    let entries = from.list(|from| {
        last = last.wrapping_add(from.number()?);
        T::decode(last, from)
    })?;
    from.end()?;
    check_order(&entries, T::key)?;
    Ok(entries)
}

/// Reads all entries of a list.
pub(crate) fn read<T: Listed>(
    store: &dyn Store,
    nodes: &[NodeRef],
) -> Result<Vec<T>, ObjectsError> {
    let found = Mutex::new(BTreeMap::new());
    each(
        nodes,
        |node| {
            found.lock().insert(node.first, node.read::<T>(store)?);
            Ok(())
        },
        |_| (),
    )?;
    let entries: Vec<T> = found.into_inner().into_values().flatten().collect();
    in_order(store, nodes, entries)
}

/// The entries of `nodes`, if they are in order across the nodes, too.
pub(crate) fn in_order<T: Listed>(
    store: &dyn Store,
    nodes: &[NodeRef],
    entries: Vec<T>,
) -> Result<Vec<T>, ObjectsError> {
    match (check_order(&entries, T::key), nodes.last()) {
        (Err(why), Some(node)) => {
            Err(ObjectsError::damaged(store, &Kind::Map.name(node.object), &why))
        }
        _ => Ok(entries),
    }
}

/// The nodes of the list `new`, which was `old` in the nodes `nodes`. Those that are new lie in the
/// map object `object`, whose content goes on with them.
pub(crate) fn write<T: Listed>(
    nodes: &[NodeRef],
    old: &[T],
    new: &[T],
    object: ObjectId,
    content: &mut Vec<u8>,
) -> Vec<NodeRef> {
    let mut written = Writing { nodes: Vec::new(), pending: 0..0, object, content };
    // What lies before the first node, or in none, belongs to the first.
    let starts = nodes.iter().enumerate().map(|(at, node)| if at == 0 { 0 } else { node.first });
    let starts: Vec<u64> = starts.collect();
    let part = |entries: &[T], index: usize| {
        let first = entries.partition_point(|entry| entry.key() < starts[index]);
        let end = starts.get(index + 1);
        let end = end.map_or(entries.len(), |end| entries.partition_point(|it| it.key() < *end));
        first..end
    };
    if nodes.is_empty() {
        written.pending = 0..new.len();
    }
    for (index, node) in nodes.iter().enumerate() {
        let (before, now) = (part(old, index), part(new, index));
        if old[before] == new[now.clone()] && !now.is_empty() {
            written.finish(new);
            written.nodes.push(*node);
            written.pending = now.end..now.end;
        } else {
            written.pending.end = now.end;
        }
    }
    written.finish(new);
    written.nodes
}

struct Writing<'a> {
    nodes: Vec<NodeRef>,
    /// Entries for which there is no node yet.
    pending: std::ops::Range<usize>,
    object: ObjectId,
    content: &'a mut Vec<u8>,
}

impl Writing<'_> {
    fn finish<T: Listed>(&mut self, new: &[T]) {
        let pending = &new[self.pending.clone()];
        if pending.is_empty() {
            return;
        }
        let each = pending.len().div_ceil(pending.len().div_ceil(MOST_ENTRIES));
        for entries in pending.chunks(each) {
            let offset = self.content.len() as u64;
            let encoded = encode(entries, identity(self.object, offset));
            let len = encoded.len() as u64;
            let first = entries[0].key();
            self.nodes.push(NodeRef { first, object: self.object, offset, len });
            self.content.extend(encoded);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Entry(u64, u64);

    impl Listed for Entry {
        fn key(&self) -> u64 {
            self.0
        }

        fn encode(&self, to: &mut Encoder) {
            to.number(self.1);
        }

        fn decode(key: u64, from: &mut Decoder<'_>) -> Result<Self, Malformed> {
            Ok(Self(key, from.number()?))
        }
    }

    /// All nodes of a list lie in the bytes of their objects.
    fn read_all(objects: &[Vec<u8>], nodes: &[NodeRef]) -> Vec<Entry> {
        let of = |node: &NodeRef| {
            let bytes = &objects[node.object.raw() as usize];
            let part = &bytes[node.offset as usize..][..node.len as usize];
            decode::<Entry>(part, node.identity()).unwrap()
        };
        nodes.iter().flat_map(of).collect()
    }

    #[test]
    fn what_did_not_change_stays_where_it_is() {
        let mut rng = StdRng::seed_from_u64(1);
        let (mut objects, mut nodes) = (Vec::new(), Vec::new());
        let mut list: BTreeMap<u64, u64> = BTreeMap::new();
        let mut old: Vec<Entry> = Vec::new();
        for round in 0..300_u64 {
            let many = if round % 50 == 0 { 4000 } else { rng.random_range(0..20) };
            for _ in 0..many {
                list.insert(rng.random_range(0..100_000), round);
            }
            if round % 40 == 39 {
                let start = rng.random_range(0..90_000);
                list.retain(|key, _| !(start..start + 20_000).contains(key));
            }
            let new: Vec<Entry> = list.iter().map(|(key, value)| Entry(*key, *value)).collect();
            let mut content = Vec::new();
            nodes = write(&nodes, &old, &new, ObjectId::from_raw(round), &mut content);
            objects.push(content);
            assert_eq!(read_all(&objects, &nodes), new, "round {round}");
            assert!(nodes.is_sorted_by(|one, other| one.first < other.first));
            old = new;
        }
        // One change writes one node.
        let before = nodes.clone();
        let mut new = old.clone();
        let middle = new.len() / 2;
        new[middle].1 += 1;
        let mut content = Vec::new();
        nodes = write(&nodes, &old, &new, ObjectId::from_raw(300), &mut content);
        assert_eq!(nodes.iter().filter(|node| !before.contains(node)).count(), 1);
        assert!(write::<Entry>(&nodes, &new, &[], ObjectId::from_raw(9), &mut content).is_empty());
    }
}
