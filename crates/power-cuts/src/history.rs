//! What was done, and what must be left of it.

use std::fmt::{Debug, Display};

/// States `S` of what is watched on a recorded device, one after each step, and promises `P` of calls that
/// returned: that something is as it was in the last state then, or in a later one, after any cut from there on.
#[derive(Debug)]
pub struct History<S, P> {
    states: Vec<S>,
    /// Where in the recording the step began that led to each state.
    begun: Vec<usize>,
    /// What each step was, and what was promised after it.
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
    /// Begins with the state in which a recording is at `position`.
    pub fn new(position: usize, state: S) -> Self {
        let steps = vec!["0: the beginning".into()];
        Self { states: vec![state], begun: vec![position], steps, promises: Vec::new() }
    }

    /// Where in the recording it began.
    pub fn began(&self) -> usize {
        self.begun[0]
    }

    /// Notes a step that began when the recording was at `begun`, and the state after it.
    pub fn note(&mut self, begun: usize, step: impl Display, state: S) {
        self.steps.push(format!("{}: {step}", self.states.len()));
        self.begun.push(begun);
        self.states.push(state);
    }

    /// Notes what a call promised that had returned when the recording was at `position`.
    pub fn promise(&mut self, what: P, position: usize) {
        let state = self.states.len() - 1;
        let note = format!("; promised {what:?} at {position}");
        self.steps[state] += &note;
        self.promises.push(Promise { what, state, position });
    }

    /// What was promised before a cut at `position`.
    pub fn promised(&self, position: usize) -> impl Iterator<Item = &P> {
        self.due(position).map(|promise| &promise.what)
    }

    fn due(&self, position: usize) -> impl Iterator<Item = &Promise<P>> {
        self.promises.iter().filter(move |promise| promise.position <= position)
    }

    /// Holds what a cut at `position` left to what was promised before. `is_kept` is given a promise and the
    /// states from that in which it was given to the last that the cut may have left, and says what is wrong.
    /// It panics on the first promise that is broken, naming `what` and all steps.
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
    fn promises_are_held_to_states_that_may_be_there() {
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
