//! Records the operations of threads on a few addresses with their times, and looks for an order
//! that explains every result and contradicts no clock: the check of Wing and Gong, with a memory
//! of the states that were already ruled out.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use larder_range_index::{Order, RangeIndex, Request};

/// Addresses of the histories. Few, so that operations meet; more than a node holds.
const SPACE: u64 = 12;

#[derive(Clone, Copy, Debug)]
enum Call {
    Insert(u64, u64),
    Remove(u64),
    Get(u64),
    FirstAtOrAfter(u64),
    LastAtOrBefore(u64),
    Resize(u64, u64, u64),
    InsertSplitting(u64, u64),
    MergeAt(u64),
    SplitAt(u64),
    Claim(u64),
}

/// Start, end and value of an entry, or whether it worked, or nothing.
type Answer = Option<(u64, u64, u64)>;

#[derive(Clone, Copy, Debug)]
struct Event {
    call: Call,
    value: u64,
    answer: Answer,
    began: u64,
    ended: u64,
}

/// For each address the value of the entry that covers it and where that begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State([Option<(u8, u32)>; SPACE as usize]);

impl State {
    fn entry(&self, at: u64) -> Answer {
        let (start, value) = self.0[at as usize]?;
        let len =
            (u64::from(start)..SPACE).take_while(|&i| self.0[i as usize] == Some((start, value)));
        Some((u64::from(start), u64::from(start) + len.count() as u64, u64::from(value)))
    }

    fn is_free(&self, start: u64, end: u64) -> bool {
        (start..end).all(|at| self.0[at as usize].is_none())
    }

    fn set(&mut self, start: u64, end: u64, value: Option<u64>) {
        for at in start..end {
            self.0[at as usize] = value.map(|value| (start as u8, value as u32));
        }
    }

    /// The answer of the call in this state, and the state after it.
    fn apply(mut self, call: Call, value: u64) -> (Answer, State) {
        let done = Some((0, 0, 0));
        let answer = match call {
            Call::Insert(start, end) => self.is_free(start, end).then(|| {
                self.set(start, end, Some(value));
                (0, 0, 0)
            }),
            Call::Remove(at) => {
                self.entry(at).inspect(|&(start, end, _)| self.set(start, end, None))
            }
            Call::Get(at) => self.entry(at),
            Call::FirstAtOrAfter(at) => (at..SPACE).find_map(|at| self.entry(at)),
            Call::LastAtOrBefore(at) => (0..=at).rev().find_map(|at| self.entry(at)),
            Call::Resize(at, start, end) => self.entry(at).and_then(|(old_start, old_end, old)| {
                let mut next = self;
                next.set(old_start, old_end, None);
                next.is_free(start, end).then(|| {
                    next.set(start, end, Some(old));
                    self = next;
                    (0, 0, 0)
                })
            }),
            Call::InsertSplitting(start, end) => {
                // The part beyond the right end becomes a new entry after the inserted one.
                let behind = (end < SPACE).then(|| self.entry(end)).flatten();
                if let Some((begins, old_end, old)) = behind
                    && begins < end
                {
                    self.set(end, old_end, Some(old));
                }
                self.set(start, end, Some(value));
                done
            }
            Call::MergeAt(at) => {
                let (left, right) = (self.entry(at - 1), self.entry(at));
                match left.zip(right) {
                    Some((left, right)) if left.1 == at && right.0 == at => {
                        self.set(left.0, right.1, Some(left.2));
                        done
                    }
                    _ => None,
                }
            }
            Call::SplitAt(at) => {
                self.entry(at).filter(|entry| entry.0 < at).map(|(_, end, old)| {
                    self.set(at, end, Some(old));
                    (0, 0, 0)
                })
            }
            // A specification of single steps does not determine the hole that is claimed.
            Call::Claim(_) => unreachable!("checked by its answer"),
        };
        (answer, self)
    }

    /// The state after the event, if the event is possible here.
    fn after(self, event: &Event) -> Option<State> {
        if let Call::Claim(len) = event.call {
            // A failure tells nothing about a single moment: holes may move during the search.
            let Some((start, ..)) = event.answer else { return Some(self) };
            let mut next = self;
            next.set(start, start + len, Some(event.value));
            return self.is_free(start, start + len).then_some(next);
        }
        let (answer, next) = self.apply(event.call, event.value);
        (answer == event.answer).then_some(next)
    }
}

/// Whether some order of the events explains them all.
fn is_linearizable(events: &[Event], state: State) -> bool {
    fn search(
        events: &[Event],
        done: u64,
        state: State,
        ruled_out: &mut HashSet<(u64, State)>,
    ) -> bool {
        if done.count_ones() as usize == events.len() {
            return true;
        }
        if !ruled_out.insert((done, state)) {
            return false;
        }
        let open = |index: &usize| done & (1 << index) == 0;
        let first_end = (0..events.len()).filter(open).map(|index| events[index].ended).min();
        (0..events.len())
            .filter(open)
            // An event that began after another had ended cannot come before it.
            .filter(|&index| Some(events[index].began) <= first_end)
            .any(|index| {
                let next = state.after(&events[index]);
                next.is_some_and(|next| search(events, done | 1 << index, next, ruled_out))
            })
    }
    search(events, 0, state, &mut HashSet::new())
}

fn perform(index: &RangeIndex<u64, 4>, call: Call, value: u64) -> Answer {
    let entry = |found: Option<(std::ops::Range<u64>, u64)>| {
        found.map(|(range, value)| (range.start, range.end, value))
    };
    let worked = |done: bool| done.then_some((0, 0, 0));
    match call {
        Call::Insert(start, end) => worked(index.insert(start..end, value).is_ok()),
        Call::Remove(at) => entry(index.remove(at)),
        Call::Get(at) => entry(index.get(at)),
        Call::FirstAtOrAfter(at) => entry(index.first_at_or_after(at)),
        Call::LastAtOrBefore(at) => entry(index.last_at_or_before(at)),
        Call::Resize(at, start, end) => worked(index.resize(at, start..end).is_ok()),
        Call::InsertSplitting(start, end) => {
            index.insert_splitting(start..end, value, |old, _| *old.value);
            worked(true)
        }
        Call::MergeAt(at) => worked(index.merge_at(at, |left, _| Some(*left))),
        Call::SplitAt(at) => worked(index.split_at(at, |old| *old.value)),
        Call::Claim(len) => {
            let request = Request::new(len).within(0..SPACE).order(Order::From(value % SPACE));
            index.claim(&request, value).map(|start| (start, start + len, value))
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    fn call(&mut self) -> Call {
        let at = self.below(SPACE);
        let end = (at + 1 + self.below(3)).min(SPACE);
        match self.below(20) {
            0..5 => Call::Insert(at, end),
            5..9 => Call::Remove(at),
            9..11 => Call::Get(at),
            11..13 => Call::FirstAtOrAfter(at),
            13 => Call::LastAtOrBefore(at),
            14 => Call::Resize(at, at.saturating_sub(self.below(2)), end),
            15 => Call::InsertSplitting(at, end),
            16 => Call::MergeAt(at.max(1)),
            17 => Call::SplitAt(at),
            _ => Call::Claim(1 + self.below(2)),
        }
    }
}

#[test]
fn histories_have_an_order_that_explains_them() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 8;
    let histories = if cfg!(miri) { 2 } else { 500 };
    for history in 0..histories {
        let index = RangeIndex::<u64, 4>::with_node_size();
        let mut state = State([None; SPACE as usize]);
        // Enough for several nodes.
        for at in (0..SPACE).filter(|at| (at + history) % 5 != 0) {
            index.insert(at..at + 1, 1000 + at).unwrap();
            state.set(at, at + 1, Some(1000 + at));
        }
        let (clock, barrier) = (AtomicU64::new(0), Barrier::new(THREADS as usize));
        let events: Vec<Event> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|me| {
                    let (index, clock, barrier) = (&index, &clock, &barrier);
                    scope.spawn(move || {
                        let mut random = Random(history * THREADS + me);
                        barrier.wait();
                        let events = (0..CALLS).map(|turn| {
                            let (call, value) = (random.call(), me * CALLS + turn);
                            let began = clock.fetch_add(1, SeqCst);
                            let answer = perform(index, call, value);
                            let ended = clock.fetch_add(1, SeqCst);
                            if random.below(3) == 0 {
                                thread::yield_now();
                            }
                            Event { call, value, answer, began, ended }
                        });
                        events.collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(is_linearizable(&events, state), "history {history}: {events:#?}");
    }
}

/// Tests the checker itself: an impossible history, and one that is possible only in another order.
#[test]
fn the_checker_tells_histories_apart() {
    let event = |call, answer, began, ended| Event { call, value: 7, answer, began, ended };
    let empty = State([None; SPACE as usize]);
    let insert = event(Call::Insert(3, 4), Some((0, 0, 0)), 0, 5);
    let found = event(Call::Get(3), Some((3, 4, 7)), 1, 2);
    let missed = event(Call::Get(3), None, 3, 4);
    assert!(is_linearizable(&[insert, found], empty));
    assert!(!is_linearizable(&[insert, found, missed], empty), "seen, then not seen");
    let missed_before = event(Call::Get(3), None, 0, 1);
    assert!(is_linearizable(&[found, missed_before, insert], empty));
}
