//! The history of threads, each in a folder of its own, and what a cut may leave of it.
//!
//! # Promises
//! - A commit is of one moment: of every thread it has all steps that were done by then, and the
//!   step in progress all or not at all, as far as names and attributes go.
//! - Data is at least as new as when the last sync began that returned before the cut, and at most
//!   as new as that moment. Where nothing was written in between, it is exact.
//! - A snapshot is of one moment while it was taken, and does not change.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use larder::Subvolume;

use super::super::model::Model;
use super::super::view::{View, by_larder};

/// Moments are counted, not measured.
#[derive(Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn now(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

/// After a step of one thread.
pub(super) struct State {
    /// When the step began, and when it was done.
    pub(super) begun: u64,
    pub(super) done: u64,
    pub(super) model: Model,
}

/// The history of one thread. Its first state is that before any step.
pub(super) struct Lane {
    pub(super) folder: String,
    pub(super) states: Vec<State>,
}

/// A sync that returned.
pub(super) struct Sync {
    pub(super) begun: u64,
    /// The position of the recording when it had returned.
    pub(super) position: usize,
}

pub(super) struct Snapshot {
    pub(super) name: String,
    pub(super) begun: u64,
    pub(super) done: u64,
    /// The position of the recording when it had been taken, and when its deletion began and was
    /// done.
    pub(super) taken: usize,
    pub(super) leaving: Option<usize>,
    pub(super) gone: Option<usize>,
}

#[derive(Default)]
pub(super) struct History {
    pub(super) lanes: Vec<Lane>,
    pub(super) syncs: Vec<Sync>,
    pub(super) snapshots: Vec<Snapshot>,
    /// By lane and state: all names and attributes.
    shapes: Vec<Vec<u64>>,
}

impl History {
    /// Call this once the work is done, before judging a cut.
    pub(super) fn finish(&mut self) {
        let shapes =
            |lane: &Lane| lane.states.iter().map(|state| shape(&state.model.view())).collect();
        self.shapes = self.lanes.iter().map(shapes).collect();
    }

    /// Checks the state after a cut at `position` against the promises.
    pub(super) fn judge(&self, root: &Subvolume, position: usize) {
        let sync = self.syncs.iter().rfind(|sync| sync.position <= position);
        let since = sync.expect("cuts come after the first sync").begun;
        self.hold(root, "", since..=u64::MAX);
        for snapshot in self.snapshots.iter().filter(|snapshot| snapshot.taken <= position) {
            let is_there = root.lookup(&snapshot.name).is_ok();
            if snapshot.leaving.is_none_or(|leaving| leaving > position) {
                assert!(is_there, "{} is lost", snapshot.name);
            }
            assert!(!is_there || snapshot.gone.is_none_or(|gone| gone > position), "it came back");
            if is_there {
                self.hold(root, &format!("{}/", snapshot.name), snapshot.begun..=snapshot.done);
            }
        }
    }

    /// Finds the moment, one of `moments`, at which all lanes had their state below `prefix`.
    fn hold(&self, root: &Subvolume, prefix: &str, moments: RangeInclusive<u64>) {
        let seen: Vec<View> = self
            .lanes
            .iter()
            .map(|lane| by_larder(root, &format!("{prefix}{}", lane.folder)).unwrap())
            .collect();
        let shapes: Vec<u64> = seen.iter().map(shape).collect();
        let begun = self.lanes.iter().flat_map(|lane| lane.states.iter().map(|state| state.begun));
        let mut candidates: Vec<u64> =
            begun.chain([*moments.start()]).filter(|moment| moments.contains(moment)).collect();
        candidates.sort_unstable();
        let at = |moment: u64| -> Option<Vec<usize>> {
            (0..self.lanes.len()).map(|lane| self.state_at(lane, shapes[lane], moment)).collect()
        };
        let Some(states) = candidates.iter().rev().find_map(|moment| at(*moment)) else {
            let lanes = 0..self.lanes.len();
            let known: Vec<_> = lanes.map(|lane| self.windows(lane, shapes[lane])).collect();
            panic!("{prefix}: no moment of {moments:?} has all of this: {known:?}");
        };
        for (lane, (seen, state)) in self.lanes.iter().zip(seen.iter().zip(states)) {
            lane.hold_data(seen, *moments.start(), state);
        }
    }

    /// The moments at which a lane may have had a shape, by state.
    fn windows(&self, lane: usize, shape: u64) -> Vec<(usize, RangeInclusive<u64>)> {
        let states = &self.lanes[lane].states;
        let is_it = |number: &usize| self.shapes[lane][*number] == shape;
        let window = |number: usize| {
            let end = states.get(number + 1).map_or(u64::MAX, |next| next.done);
            (number, states[number].begun..=end)
        };
        (0..states.len()).filter(is_it).map(window).collect()
    }

    /// The last state of a lane that has this shape and may have existed at `moment`.
    fn state_at(&self, lane: usize, shape: u64, moment: u64) -> Option<usize> {
        let mut windows = self.windows(lane, shape).into_iter().rev();
        windows.find(|(_, window)| window.contains(&moment)).map(|(number, _)| number)
    }
}

impl Lane {
    /// Data is as in one of the states from the beginning of a sync up to the state with this
    /// number; a write in progress may be there in part.
    fn hold_data(&self, seen: &View, since: u64, last: usize) {
        let first = self.states.iter().rposition(|state| state.done <= since).unwrap_or(0);
        let states = &self.states[first.min(last)..=(last + 1).min(self.states.len() - 1)];
        for (path, seen) in seen.iter().filter(|(_, seen)| seen.is_file) {
            let number = self.states[last].model.number(path).expect("the names are alike");
            let known: Vec<&[u8]> = states
                .iter()
                .filter_map(|state| state.model.data(number))
                .map(|data| data.as_slice())
                .collect();
            let is_whole = known.iter().any(|data| *data == seen.content);
            assert!(
                is_whole || is_between(&seen.content, &known),
                "{}/{path} has {} bytes, and in states {first} to {last} had {:?}",
                self.folder,
                seen.content.len(),
                known.iter().map(|data| data.len()).collect::<Vec<_>>()
            );
        }
    }
}

/// Whether each byte had its value at some time.
fn is_between(seen: &[u8], known: &[&[u8]]) -> bool {
    let byte = |data: &[u8], at: usize| data.get(at).copied().unwrap_or(0);
    known.iter().any(|data| data.len() == seen.len())
        && (0..seen.len()).all(|at| known.iter().any(|data| byte(data, at) == seen[at]))
}

/// Names and attributes, without data and times.
fn shape(view: &View) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, seen) in view {
        (path, seen.is_file, seen.permissions, seen.nlink, &seen.xattrs).hash(&mut hasher);
        if !seen.is_file {
            seen.content.hash(&mut hasher);
        }
    }
    hasher.finish()
}
