//! Sorted extents with changes.

use super::{Extent, Source};

/// A change of a range: new content, or none.
pub(crate) type Change = (std::ops::Range<u64>, Option<Source>);

/// `old` with `changes`; both are sorted and do not overlap. Neighbours that go on with one another
/// become one extent. Calls `replaced` for the parts of old extents that the result lacks.
pub(crate) fn merge(
    old: impl IntoIterator<Item = Extent>,
    changes: &[Change],
    mut replaced: impl FnMut(Extent),
) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::new();
    let mut push = |extent: Extent| match merged.last_mut() {
        Some(last) if last.goes_on_with(&extent) => last.len += extent.len,
        _ => merged.push(extent),
    };
    let added = |(range, source): &Change| {
        let len = range.end - range.start;
        source.map(|source| Extent { start: range.start, len, source })
    };
    let mut changes = changes.iter().peekable();
    for extent in old {
        let mut at = extent.start;
        while let Some((range, _)) = changes.peek().copied().filter(|it| it.0.start < extent.end())
        {
            if let Some(kept) = extent.within(&(at..range.start.max(at))) {
                push(kept);
            }
            if let Some(gone) = extent.within(&(range.start.max(at)..range.end)) {
                replaced(gone);
            }
            at = at.max(range.end.min(extent.end()));
            if range.end > extent.end() {
                // The change goes on into the next extent, and is pushed before that one.
                break;
            }
            changes.next().and_then(added).into_iter().for_each(&mut push);
        }
        if let Some(kept) = extent.within(&(at..extent.end())) {
            push(kept);
        }
    }
    changes.filter_map(added).for_each(&mut push);
    merged
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::id::ObjectId;

    fn source(segment: u32, offset: u64) -> Source {
        Source { segment: ObjectId::new(1, segment), offset }
    }

    /// Ranges below 64 that do not overlap, in order.
    fn ranges(rng: &mut StdRng) -> Vec<std::ops::Range<u64>> {
        let mut at = 0;
        std::iter::from_fn(|| {
            let start = at + rng.random_range(0..6);
            at = start + rng.random_range(1..9);
            (at <= 64).then_some(start..at)
        })
        .collect()
    }

    fn by_byte<'a>(extents: impl IntoIterator<Item = &'a Extent>) -> BTreeMap<u64, Source> {
        let bytes = |extent: &Extent| {
            let Extent { start, source, .. } = *extent;
            (0..extent.len).map(move |at| (start + at, source.plus(at)))
        };
        extents.into_iter().flat_map(bytes).collect()
    }

    #[test]
    fn merging_is_what_byte_by_byte_would_give() {
        let mut rng = StdRng::seed_from_u64(7);
        for round in 0..20_000 {
            let old: Vec<_> = ranges(&mut rng)
                .into_iter()
                .map(|range| Extent {
                    start: range.start,
                    len: range.end - range.start,
                    source: source(1, range.start + rng.random_range(0..2)),
                })
                .collect();
            let changes: Vec<Change> = ranges(&mut rng)
                .into_iter()
                .map(|range| {
                    let source = rng.random_bool(0.7).then(|| source(2, range.start));
                    (range, source)
                })
                .collect();
            let mut expected = by_byte(&old);
            let mut gone_expected = BTreeMap::new();
            for (range, source) in &changes {
                for at in range.clone() {
                    let before = match source {
                        Some(source) => expected.insert(at, source.plus(at - range.start)),
                        None => expected.remove(&at),
                    };
                    gone_expected.extend(before.map(|before| (at, before)));
                }
            }
            let mut gone = Vec::new();
            let merged = merge(old.iter().copied(), &changes, |extent| gone.push(extent));
            assert_eq!(by_byte(&merged), expected, "round {round}: {old:?} {changes:?}");
            assert_eq!(by_byte(&gone), gone_expected, "round {round}: {old:?} {changes:?}");
            assert!(merged.windows(2).all(|pair| pair[0].end() <= pair[1].start), "{merged:?}");
        }
    }
}
