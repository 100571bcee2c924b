//! The root of a checkpoint.
//!
//! ```text
//!   root    nodes of the list of pages | nodes of the list of objects
//!   node    up to 512 entries of such a list, in their order
//! ```
//! The checksum of a part of a map object, a page, a node or a root, covers the object's id and the
//! place of the part in it: no part passes for another.
//!
//! Both lists are cut into nodes, which lie in map objects beside the pages. A checkpoint writes
//! those nodes anew whose entries have changed, so that what it writes does not grow with the file
//! system.

use crate::codec::{Decoder, Encoder, Identity, Malformed};
use crate::id::{Kind, ObjectId};

use super::list::{Listed, NodeRef, identity};

/// Where a root lies in a map object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootRef {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl RootRef {
    /// What tells it from all other parts of map objects.
    pub(crate) fn identity(&self) -> Identity {
        identity(self.object, self.offset)
    }

    pub(crate) fn encode(&self, to: &mut Encoder) {
        to.number(self.object.raw());
        to.number(self.offset);
        to.number(self.len);
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let object = ObjectId::from_raw(from.number()?);
        Ok(Self { object, offset: from.number()?, len: from.number()? })
    }
}

/// A page: it knows the device from `first` to the first byte of the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRef {
    pub(crate) first: u64,
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl PageRef {
    /// What tells it from all other parts of map objects.
    pub(crate) fn identity(&self) -> Identity {
        identity(self.object, self.offset)
    }
}

/// What is known of an immutable object.
///
/// States need an object from the one that it was `born` with up to the one before it `died`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRecord {
    pub(crate) kind: Kind,
    pub(crate) id: ObjectId,
    pub(crate) len_bytes: u64,
    pub(crate) born: u64,
    /// How much of it the state of the checkpoint needs: content of the device in a segment or
    /// flush, pages in a map.
    pub(crate) live_bytes: u64,
    pub(crate) died: Option<u64>,
    /// No kept state needs it since then, in seconds since 1970.
    pub(crate) doomed: Option<u64>,
}

/// Where the two lists of a checkpoint lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    /// Of the pages, in the order of the device. The first page, if there is one, begins at 0.
    pub(crate) pages: Vec<NodeRef>,
    /// Of the objects, in the order of their ids.
    pub(crate) objects: Vec<NodeRef>,
}

impl Root {
    pub(crate) fn encode(&self, identity: Identity) -> Vec<u8> {
        let mut to = Encoder::default();
        NodeRef::encode_all(&self.pages, &mut to);
        NodeRef::encode_all(&self.objects, &mut to);
        to.sealed_as(identity)
    }

    pub(crate) fn decode(bytes: &[u8], identity: Identity) -> Result<Self, Malformed> {
        let mut from = Decoder::unsealed_as(bytes, identity)?;
        let pages = NodeRef::decode_all(&mut from)?;
        let objects = NodeRef::decode_all(&mut from)?;
        from.end()?;
        Ok(Self { pages, objects })
    }

    /// Whether a node lies in a map object.
    pub(crate) fn has_nodes_in(&self, id: ObjectId) -> bool {
        self.pages.iter().chain(&self.objects).any(|node| node.object == id)
    }
}

impl Listed for PageRef {
    fn key(&self) -> u64 {
        self.first
    }

    fn encode(&self, to: &mut Encoder) {
        to.number(self.object.raw());
        to.number(self.offset);
        to.number(self.len);
    }

    fn decode(first: u64, from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let object = ObjectId::from_raw(from.number()?);
        Ok(Self { first, object, offset: from.number()?, len: from.number()? })
    }
}

impl Listed for ObjectRecord {
    fn key(&self) -> u64 {
        self.id.raw()
    }

    fn encode(&self, to: &mut Encoder) {
        to.number(match self.kind {
            Kind::Segment => 0,
            Kind::Map => 1,
            Kind::Flush => 2,
        });
        to.number(self.len_bytes);
        to.number(self.born);
        to.number(self.live_bytes);
        to.number(self.died.map_or(0, |died| died + 1 - self.born));
        to.number(self.doomed.map_or(0, |since| since + 1));
    }

    fn decode(key: u64, from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let kind = match from.number()? {
            0 => Kind::Segment,
            1 => Kind::Map,
            2 => Kind::Flush,
            _ => return Err(Malformed("it names an object of an unknown kind")),
        };
        let (len_bytes, born, live_bytes) = (from.number()?, from.number()?, from.number()?);
        let died = match from.number()? {
            0 => None,
            after => Some(born.wrapping_add(after - 1)),
        };
        let doomed = from.number()?.checked_sub(1);
        let id = ObjectId::from_raw(key);
        Ok(Self { kind, id, len_bytes, born, live_bytes, died, doomed })
    }
}
