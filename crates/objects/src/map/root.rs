//! The root of a checkpoint: its pages, and all immutable objects.

use crate::codec::{Decoder, Encoder, Malformed};
use crate::id::{Kind, ObjectId};

/// Where a root lies in a map object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootRef {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl RootRef {
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

/// What is known of an immutable object.
///
/// States need an object from the one that it was `born` with up to the one before it `died`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRecord {
    pub(crate) kind: Kind,
    pub(crate) id: ObjectId,
    pub(crate) len_bytes: u64,
    pub(crate) born: u64,
    /// How much of it the state of the checkpoint needs: content of the device in a segment, pages
    /// in a map.
    pub(crate) live_bytes: u64,
    pub(crate) died: Option<u64>,
}

/// An object that no kept state needs, and since when, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doomed {
    pub(crate) kind: Kind,
    pub(crate) id: ObjectId,
    pub(crate) since: u64,
}

/// All of a checkpoint except the extents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    /// In the order of the device. The first page, if there is one, begins at 0.
    pub(crate) pages: Vec<PageRef>,
    /// In the order of their ids.
    pub(crate) objects: Vec<ObjectRecord>,
    pub(crate) doomed: Vec<Doomed>,
}

impl Root {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        let mut last = 0;
        to.list(&self.pages, |to, page| {
            to.number(page.first - last);
            last = page.first;
            to.number(page.object.raw());
            to.number(page.offset);
            to.number(page.len);
        });
        let mut last = 0;
        to.list(&self.objects, |to, object| {
            to.number(object.id.raw() - last);
            last = object.id.raw();
            kind(to, object.kind);
            to.number(object.len_bytes);
            to.number(object.born);
            to.number(object.live_bytes);
            to.number(object.died.map_or(0, |died| died + 1 - object.born));
        });
        to.list(&self.doomed, |to, doomed| {
            kind(to, doomed.kind);
            to.number(doomed.id.raw());
            to.number(doomed.since);
        });
        to.sealed()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Decoder::unsealed(bytes)?;
        let mut last = 0_u64;
        let pages = from.list(|from| {
            last = last.wrapping_add(from.number()?);
            let object = ObjectId::from_raw(from.number()?);
            Ok(PageRef { first: last, object, offset: from.number()?, len: from.number()? })
        })?;
        let mut last = 0_u64;
        let objects = from.list(|from| {
            last = last.wrapping_add(from.number()?);
            let kind = decode_kind(from)?;
            let (len_bytes, born, live_bytes) = (from.number()?, from.number()?, from.number()?);
            let died = match from.number()? {
                0 => None,
                after => Some(born.wrapping_add(after - 1)),
            };
            let id = ObjectId::from_raw(last);
            Ok(ObjectRecord { kind, id, len_bytes, born, live_bytes, died })
        })?;
        let doomed = from.list(|from| {
            let kind = decode_kind(from)?;
            let id = ObjectId::from_raw(from.number()?);
            Ok(Doomed { kind, id, since: from.number()? })
        })?;
        from.end()?;
        let sorted = pages.is_sorted_by(|one, other| one.first < other.first)
            && objects.is_sorted_by(|one, other| one.id < other.id)
            && pages.first().is_none_or(|page| page.first == 0);
        if !sorted {
            return Err(Malformed("a list in it is out of order"));
        }
        Ok(Self { pages, objects, doomed })
    }
}

fn kind(to: &mut Encoder, kind: Kind) {
    to.number(match kind {
        Kind::Segment => 0,
        Kind::Map => 1,
        Kind::Flush => 2,
    });
}

fn decode_kind(from: &mut Decoder<'_>) -> Result<Kind, Malformed> {
    match from.number()? {
        0 => Ok(Kind::Segment),
        1 => Ok(Kind::Map),
        2 => Ok(Kind::Flush),
        _ => Err(Malformed("it names an object of an unknown kind")),
    }
}
