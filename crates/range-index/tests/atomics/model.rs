//! Random operations against an ordered map, one thread: every result, and the contents after each.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_range_index::{Order, Overlap, RangeIndex, Request, ResizeError};
use proptest::prelude::*;

/// The address space of the model: small, so that operations meet.
const SPACE: u64 = 600;

#[derive(Clone, Debug)]
enum Operation {
    Insert(Range<u64>),
    InsertReplacing(Range<u64>),
    InsertSplitting(Range<u64>),
    Remove(u64),
    RemoveRange(Range<u64>),
    Update(u64),
    Resize(u64, u64, u64),
    SplitAt(u64),
    MergeAt(u64),
    Claim(Request),
    Fill(u64, u64),
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..SPACE, prop_oneof![8 => 1u64..12, 1 => 1u64..200])
        .prop_map(|(start, len)| start..(start + len).min(SPACE + 200))
}

fn request() -> impl Strategy<Value = Request> {
    let order =
        prop_oneof![Just(Order::Lowest), Just(Order::Highest), (0..SPACE).prop_map(Order::From)];
    let within = prop_oneof![
        3 => Just(0..SPACE),
        1 => Just(0..u64::MAX),
        2 => (0..SPACE, 0..SPACE).prop_map(|(a, b)| a.min(b)..a.max(b)),
    ];
    (1u64..30, 1u64..9, within, order).prop_map(|(len, align, within, order)| Request {
        len,
        align,
        within,
        order,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => range().prop_map(Operation::Insert),
        1 => range().prop_map(Operation::InsertReplacing),
        1 => range().prop_map(Operation::InsertSplitting),
        5 => (0..SPACE).prop_map(Operation::Remove),
        1 => range().prop_map(Operation::RemoveRange),
        1 => (0..SPACE).prop_map(Operation::Update),
        3 => (0..SPACE, 0u64..8, 1u64..9).prop_map(|(at, left, right)| Operation::Resize(at, left, right)),
        2 => (0..SPACE).prop_map(Operation::SplitAt),
        2 => (0..SPACE).prop_map(Operation::MergeAt),
        4 => request().prop_map(Operation::Claim),
        1 => (0..SPACE, 1u64..40).prop_map(|(start, count)| Operation::Fill(start, count)),
    ]
}

/// Start to end and value.
#[derive(Default)]
struct Model(BTreeMap<u64, (u64, u64)>);

impl Model {
    fn overlapping(&self, range: &Range<u64>) -> Vec<(u64, u64, u64)> {
        let all = self.0.range(..range.end);
        let all = all.filter(|(_, (end, _))| *end > range.start);
        all.map(|(&start, &(end, value))| (start, end, value)).collect()
    }

    fn covering(&self, point: u64) -> Option<(u64, u64, u64)> {
        self.overlapping(&(point..point + 1)).pop()
    }

    fn insert(&mut self, range: Range<u64>, value: u64) -> Result<(), Overlap> {
        if let Some((start, ..)) = self.overlapping(&range).first() {
            return Err(Overlap { at: *start.max(&range.start) });
        }
        self.0.insert(range.start, (range.end, value));
        Ok(())
    }

    fn cut(&mut self, range: &Range<u64>) -> u64 {
        let mut covered = 0;
        for (start, end, value) in self.overlapping(range) {
            self.0.remove(&start);
            covered += end.min(range.end) - start.max(range.start);
            if start < range.start {
                self.0.insert(start, (range.start, kept(value, start)));
            }
            if end > range.end {
                self.0.insert(range.end, (end, kept(value, range.end)));
            }
        }
        covered
    }

    fn resize(&mut self, point: u64, range: Range<u64>) -> Result<Range<u64>, ResizeError> {
        let Some((start, end, value)) = self.covering(point) else {
            return Err(ResizeError::NotFound);
        };
        let others = self.overlapping(&range);
        let nearest_left = others.iter().rfind(|other| other.0 < start).map(|other| other.1 - 1);
        let nearest_right = others.iter().find(|other| other.0 > start).map(|other| other.0);
        if let Some(at) = nearest_left.or(nearest_right) {
            return Err(Overlap { at }.into());
        }
        self.0.remove(&start);
        self.0.insert(range.start, (range.end, value));
        Ok(start..end)
    }

    fn holes(&self) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut from = 0;
        for (&start, &(end, _)) in &self.0 {
            holes.push(from..start);
            from = end;
        }
        holes.push(from..u64::MAX);
        holes
    }

    fn place(&self, request: &Request) -> Option<u64> {
        let fits = |within: Range<u64>, highest: bool| {
            let places = self.holes().into_iter().filter_map(|hole| {
                let hole = hole.start.max(within.start)..hole.end.min(within.end);
                let start = if highest {
                    let last = hole.end.checked_sub(request.len)?;
                    last - last % request.align
                } else {
                    hole.start.checked_next_multiple_of(request.align)?
                };
                let end = start.checked_add(request.len)?;
                (hole.start <= start && end <= hole.end).then_some(start)
            });
            if highest { places.max() } else { places.min() }
        };
        let within = request.within.clone();
        match request.order {
            Order::Lowest => fits(within, false),
            Order::Highest => fits(within, true),
            Order::From(hint) => {
                let above = hint.max(within.start)..within.end;
                fits(above, false).or_else(|| fits(within, false))
            }
        }
    }
}

fn kept(value: u64, start: u64) -> u64 {
    value.wrapping_mul(31).wrapping_add(start)
}

fn apply<const KEYS: usize>(
    index: &RangeIndex<u64, KEYS>,
    model: &mut Model,
    operation: Operation,
    value: u64,
) {
    match operation {
        Operation::Insert(range) => {
            assert_eq!(index.insert(range.clone(), value), model.insert(range, value));
        }
        Operation::InsertReplacing(range) => {
            let there = model.overlapping(&range);
            for (start, ..) in &there {
                model.0.remove(start);
            }
            model.insert(range.clone(), value).unwrap();
            let there: Vec<_> = there.iter().map(|&(start, end, v)| (start..end, v)).collect();
            assert_eq!(index.insert_replacing(range, value), there);
        }
        Operation::InsertSplitting(range) => {
            model.cut(&range);
            model.insert(range.clone(), value).unwrap();
            index.insert_splitting(range, value, |old, left| kept(*old.value, left.start));
        }
        Operation::Remove(point) => {
            let there = model.covering(point);
            if let Some((start, ..)) = there {
                model.0.remove(&start);
            }
            assert_eq!(index.remove(point), there.map(|(start, end, value)| (start..end, value)));
        }
        Operation::RemoveRange(range) => {
            let removed =
                index.remove_range(range.clone(), |old, left| kept(*old.value, left.start));
            assert_eq!(removed, model.cut(&range));
        }
        Operation::Update(point) => {
            let there = model.covering(point);
            if let Some((start, end, old)) = there {
                model.0.insert(start, (end, old + 1));
            }
            assert_eq!(index.update(point, |old| old + 1), there.map(|(_, _, old)| old));
        }
        Operation::Resize(point, left, right) => {
            let range = point.saturating_sub(left)..point + right;
            assert_eq!(index.resize(point, range.clone()), model.resize(point, range));
        }
        Operation::SplitAt(point) => {
            let there = model.covering(point).filter(|(start, ..)| *start < point);
            if let Some((start, end, old)) = there {
                model.0.insert(start, (point, old));
                model.0.insert(point, (end, kept(old, point)));
            }
            assert_eq!(index.split_at(point, |old| kept(*old.value, point)), there.is_some());
        }
        Operation::MergeAt(point) => {
            let left = point.checked_sub(1).and_then(|last| model.covering(last));
            let right = model.covering(point);
            let both = left.zip(right).filter(|(left, right)| left.1 == point && right.0 == point);
            // Refuses every seventh, to check that refusing changes nothing.
            let both = both.filter(|(left, right)| !(left.2 ^ right.2).is_multiple_of(7));
            if let Some((left, right)) = both {
                model.0.remove(&right.0);
                model.0.insert(left.0, (right.1, left.2 ^ right.2));
            }
            let merge = |l: &u64, r: &u64| (!(l ^ r).is_multiple_of(7)).then_some(l ^ r);
            assert_eq!(index.merge_at(point, merge), both.is_some());
        }
        Operation::Claim(request) => {
            let place = model.place(&request);
            if let Some(start) = place {
                model.insert(start..start + request.len, value).unwrap();
            }
            assert_eq!(index.claim(&request, value), place, "{request:?}");
        }
        Operation::Fill(start, count) => {
            for start in (start..).step_by(3).take(count as usize) {
                let range = start..start + 2;
                assert_eq!(index.insert(range.clone(), value), model.insert(range, value));
            }
        }
    }
}

fn assert_same<const KEYS: usize>(index: &RangeIndex<u64, KEYS>, model: &Model) {
    let reader = index.reader();
    let expected: Vec<_> =
        model.0.iter().map(|(&start, &(end, value))| (start, end, value)).collect();
    let all: Vec<_> = reader.ascending(0..u64::MAX).map(|e| (e.start, e.end, *e.value)).collect();
    assert_eq!(all, expected);
    let mut back: Vec<_> =
        reader.descending(0..u64::MAX).map(|e| (e.start, e.end, *e.value)).collect();
    back.reverse();
    assert_eq!(back, expected);
    assert_eq!(index.len(), expected.len());
    assert_eq!(index.covered(), expected.iter().map(|(start, end, _)| end - start).sum::<u64>());
}

fn assert_same_at<const KEYS: usize>(index: &RangeIndex<u64, KEYS>, model: &Model, point: u64) {
    let owned = |(start, end, value)| (start..end, value);
    assert_eq!(index.get(point), model.covering(point).map(owned));
    let after = model.overlapping(&(point..u64::MAX)).first().copied();
    assert_eq!(index.first_at_or_after(point), after.map(owned));
    let before = model.0.range(..=point).next_back().map(|(&start, &(end, v))| (start..end, v));
    assert_eq!(index.last_at_or_before(point), before);
    let window = point..point + 50;
    let expected: Vec<_> = model.overlapping(&window).into_iter().map(owned).collect();
    let reader = index.reader();
    let up: Vec<_> =
        reader.ascending(window.clone()).map(larder_range_index::Entry::to_owned).collect();
    assert_eq!(up, expected);
    let mut down: Vec<_> =
        reader.descending(window).map(larder_range_index::Entry::to_owned).collect();
    down.reverse();
    assert_eq!(down, expected);
}

fn run<const KEYS: usize>(operations: Vec<Operation>) {
    let index = RangeIndex::<u64, KEYS>::with_node_size();
    let mut model = Model::default();
    for (step, operation) in operations.into_iter().enumerate() {
        apply(&index, &mut model, operation, step as u64);
        assert_same(&index, &model);
        assert_same_at(&index, &model, (step as u64 * 37) % SPACE);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 300 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_nodes_agree_with_an_ordered_map(
        operations in prop::collection::vec(operation(), 1..if cfg!(miri) { 30 } else { 200 })
    ) {
        run::<4>(operations);
    }

    #[test]
    fn nodes_of_the_usual_size_agree_with_an_ordered_map(
        operations in prop::collection::vec(operation(), 1..if cfg!(miri) { 30 } else { 200 })
    ) {
        run::<32>(operations);
    }
}

#[test]
fn the_ends_of_the_address_space() {
    let index = RangeIndex::new();
    let last = u64::MAX - 1;
    assert_eq!(index.first_at_or_after(0), None);
    assert_eq!(index.last_at_or_before(u64::MAX), None);
    index.insert(0..1, 'a').unwrap();
    index.insert(last..u64::MAX, 'z').unwrap();
    assert_eq!(index.get(last), Some((last..u64::MAX, 'z')));
    assert_eq!(index.get(u64::MAX), None);
    assert_eq!(index.last_at_or_before(u64::MAX), Some((last..u64::MAX, 'z')));
    assert_eq!(index.first_at_or_after(u64::MAX), None);
    assert_eq!(index.claim(&Request::new(u64::MAX - 2), 'm'), Some(1));
    assert_eq!(index.claim(&Request::new(1), 'n'), None);
    assert_eq!(index.covered(), u64::MAX);
    assert!(index.merge_at(1, |_, _| Some('b')));
    assert_eq!(index.remove_range(0..u64::MAX, |entry, _| *entry.value), u64::MAX);
    assert!(index.is_empty());
}

#[test]
#[should_panic(expected = "at least one address")]
fn an_empty_range_is_refused() {
    RangeIndex::new().insert(5..5, ()).unwrap();
}
