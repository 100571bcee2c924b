//! The history of a recording: its steps, and the promises that must hold after a cut.

use std::fmt::{Debug, Display};

/// The states `S` of a recorded device, one after each step, and promises `P` of calls that
/// returned: after any later cut, the subject of the promise is as in the last state before it, or
/// as in a later one.
#[derive(Debug)]
pub struct History<S, P> {
    states: Vec<S>,
    /// For each state, the position in the recording at which its step began.
    begun: Vec<usize>,
    /// The description of each step, and the promises after it.
    steps: Vec<String>,
    promises: Vec<Promise<P>>,
}

#[derive(Debug)]
struct Promise<P> {
    what: P,
    state: usize,
    position: usize,
}

impl<S, P: Debug> History<S, P> {
    /// Starts with the state of a recording at `position`.
    pub fn new(position: usize, state: S) -> Self {
        let steps = vec!["0: the beginning".into()];
        Self { states: vec![state], begun: vec![position], steps, promises: Vec::new() }
    }

    /// The position in the recording at which it began.
    pub fn began(&self) -> usize {
        self.begun[0]
    }

    /// Adds a step that began when the recording was at `begun`, and the state after it.
    pub fn note(&mut self, begun: usize, step: impl Display, state: S) {
        self.steps.push(format!("{}: {step}", self.states.len()));
        self.begun.push(begun);
        self.states.push(state);
    }

    /// Adds a promise of a call that had returned when the recording was at `position`.
    pub fn promise(&mut self, what: P, position: usize) {
        let state = self.states.len() - 1;
        let note = format!("; promised {what:?} at {position}");
        self.steps[state] += &note;
        self.promises.push(Promise { what, state, position });
    }

    /// The promises before a cut at `position`.
    pub fn promised(&self, position: usize) -> impl Iterator<Item = &P> {
        self.due(position).map(|promise| &promise.what)
    }

    fn due(&self, position: usize) -> impl Iterator<Item = &Promise<P>> {
        self.promises.iter().filter(move |promise| promise.position <= position)
    }

    /// Checks the promises before a cut at `position`. `is_kept` gets a promise and the states from
    /// that of the promise to the last that the cut may have left, and returns the problem, if
    /// there is one. Panics on the first broken promise, with `what` and all steps.
    #[track_caller]
    pub fn judge(
        &self,
        position: usize,
        what: &str,
        mut is_kept: impl FnMut(&P, &[S]) -> Result<(), String>,
    ) {
        let last = self.begun.iter().rposition(|begun| *begun <= position);
        let last = last.expect("cuts come after the beginning");
        for promise in self.due(position) {
            if let Err(problem) = is_kept(&promise.what, &self.states[promise.state..=last]) {
                let (steps, promised) = (self.steps[..=last].join("\n"), &promise.what);
                let given = promise.state;
                panic!(
                    "{what}, cut at {position}, state {last}: {promised:?}, promised in state {given}: {problem}\n{steps}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History<char, &'static str> {
        let mut history = History::new(10, 'a');
        history.promise("first", 10);
        history.note(20, "b", 'b');
        history.note(30, "c", 'c');
        history.promise("second", 40);
        history
    }

    fn judged(position: usize) -> Vec<(&'static str, String)> {
        let mut judged = Vec::new();
        history().judge(position, "", |what, states| {
            judged.push((*what, states.iter().collect()));
            Ok(())
        });
        judged
    }

    #[test]
    fn promises_are_checked_against_possible_states() {
        assert_eq!(judged(10), [("first", "a".into())]);
        assert_eq!(judged(29), [("first", "ab".into())]);
        assert_eq!(judged(39), [("first", "abc".into())]);
        assert_eq!(judged(40), [("first", "abc".into()), ("second", "c".into())]);
        assert_eq!(history().promised(39).count(), 1);
    }

    #[test]
    #[should_panic(
        expected = "seed 7, cut at 40, state 2: \"second\", promised in state 2: it is lost"
    )]
    fn a_broken_promise_is_named() {
        history().judge(40, "seed 7", |what, _| {
            if *what == "second" { Err("it is lost".into()) } else { Ok(()) }
        });
    }
}
