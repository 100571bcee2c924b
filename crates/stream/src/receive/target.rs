//! What a stream is applied to.

use larder_format::Uuid;

use super::error::{CommandError, CommandProblem};
use crate::wire::Command;

/// A state of a subvolume, as streams name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Uuid of the subvolume, or of the one that it was received from itself.
    pub uuid: Uuid,
    /// The transaction that last changed it.
    pub ctransid: u64,
}

/// Where subvolumes are received, one after the other.
///
/// Paths of commands have been checked: they lead nowhere but down. A target may put commands off,
/// as long as no reader can tell once [`apply_deferred`](Self::apply_deferred) has returned; an error then names
/// the command that it is about.
pub trait Target {
    /// Begins a subvolume of this name, which is one part of a path: empty, or as a snapshot of the
    /// subvolume that is known as `parent`. What was begun before is left as it is.
    fn begin(
        &mut self,
        name: &[u8],
        sent: Origin,
        parent: Option<Origin>,
    ) -> Result<(), CommandProblem>;

    /// Applies a command that is about what is in the subvolume.
    fn apply(&mut self, command: &Command<'_>) -> Result<(), CommandError>;

    /// Applies what was put off. After an error it is called again, for the next one.
    fn apply_deferred(&mut self) -> Result<(), CommandError>;

    /// Makes the subvolume read-only and notes where it comes from. It is durable then.
    fn finish(&mut self) -> Result<(), CommandProblem>;
}

/// Of the subvolumes that have a uuid, or were received from one that has it, the one that is in the
/// state `wanted`: each is given with its uuid, received uuid, and the transactions that go with them.
///
/// A subvolume that came back to where it was sent from is known there under the uuid that it has there,
/// but by the transaction of the other file system: so one of the right uuid is taken if no transaction
/// fits, what was received before what was made here.
pub(super) fn choose<T>(candidates: Vec<(Candidate, T)>, wanted: Origin) -> Option<T> {
    let rank = |candidate: &Candidate| {
        let received = candidate.received == Some(wanted);
        let own = candidate.own == wanted;
        let is_received = candidate.received.is_some_and(|origin| origin.uuid == wanted.uuid);
        (received, own, is_received)
    };
    candidates.into_iter().max_by_key(|(candidate, _)| rank(candidate)).map(|(_, found)| found)
}

/// What a subvolume is known as.
pub(super) struct Candidate {
    /// Its own uuid, and the transaction that last changed it.
    pub(super) own: Origin,
    /// What it was received from, if it was.
    pub(super) received: Option<Origin>,
}
