//! Pages: sorted extents.

use std::ops::Range;

use crate::codec::{Decoder, Encoder, Identity, Malformed};
use crate::id::ObjectId;

use super::extent::{add, unzigzag, zigzag};
use super::{Extent, Source};

/// The most extents of a page: packed, they take 30 KiB as a rule.
pub(crate) const MOST_EXTENTS: usize = 4096;

/// Extents that are sorted, do not overlap, and do not go on with one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    extents: Vec<Extent>,
}

impl Page {
    pub(crate) fn new(extents: Vec<Extent>) -> Self {
        Self { extents }
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The parts of extents in `range`, in order.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Extent> {
        let first = self.extents.partition_point(|extent| extent.end() <= range.start);
        self.extents[first..].iter().map_while(move |extent| extent.within(&range))
    }

    pub(crate) fn encode(&self, identity: Identity) -> Vec<u8> {
        let mut to = Encoder::default();
        let (mut device_at, mut segment, mut segment_at) = (0, 0_u64, 0_u64);
        to.list(&self.extents, |to, extent| {
            let Source { segment: id, offset } = extent.source;
            to.number(extent.start - device_at);
            to.number(extent.len);
            to.number(zigzag(id.raw().wrapping_sub(segment) as i64));
            to.number(zigzag(offset.wrapping_sub(segment_at) as i64));
            device_at = extent.end();
            segment = id.raw();
            segment_at = offset + extent.len;
        });
        to.sealed_as(identity)
    }

    pub(crate) fn decode(bytes: &[u8], identity: Identity) -> Result<Self, Malformed> {
        let mut from = Decoder::unsealed_as(bytes, identity)?;
        let (mut device_at, mut segment, mut segment_at) = (0, 0_u64, 0_u64);
        let extents = from.list(|from| {
            let start = add(device_at, from.number()?)?;
            let len = from.number()?;
            device_at = add(start, len)?;
            segment = segment.wrapping_add(unzigzag(from.number()?) as u64);
            let offset = segment_at.wrapping_add(unzigzag(from.number()?) as u64);
            segment_at = add(offset, len)?;
            let source = Source { segment: ObjectId::from_raw(segment), offset };
            Ok(Extent { start, len, source })
        })?;
        from.end()?;
        Ok(Self { extents })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, len: u64, number: u32, offset: u64) -> Extent {
        Extent { start, len, source: Source { segment: ObjectId::new(3, number), offset } }
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let page = Page::new(vec![
            extent(4096, 4096, 9, 1 << 22),
            extent(8192, 16384, 2, 0),
            extent(1 << 40, 512, 2, 16384),
        ]);
        assert_eq!(Page::decode(&page.encode([3, 9]), [3, 9]).unwrap(), page);
    }

    #[test]
    fn parts_are_cut_at_the_range() {
        let page = Page::new(vec![extent(100, 50, 1, 0), extent(200, 50, 2, 1000)]);
        let found: Vec<_> = page.within(140..210).collect();
        assert_eq!(found, [extent(140, 10, 1, 40), extent(200, 10, 2, 1000)]);
        assert_eq!(page.within(150..200).count(), 0);
    }
}
