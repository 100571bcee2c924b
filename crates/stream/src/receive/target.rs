//! The target of a stream.

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

impl Origin {
    /// The state of a subvolume that is sent: one that was received keeps the uuid of its source.
    pub fn sent(uuid: Uuid, received_uuid: Uuid, ctransid: u64) -> Self {
        Self { uuid: if received_uuid.is_nil() { uuid } else { received_uuid }, ctransid }
    }
}

/// What a target makes a new subvolume of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base<'a> {
    /// Nothing: it is empty.
    Empty,
    /// A snapshot of the parent that the stream names.
    Parent(Origin),
    /// A snapshot of the checkpoint of this name in the target.
    Checkpoint(&'a str),
}

/// A place for subvolumes, which are received one after the other.
///
/// Paths of commands have been checked: they lead down. A target may defer commands, as long as no
/// reader can tell once [`apply_deferred`](Self::apply_deferred) has returned; an error then names
/// its command.
pub trait Target {
    /// Begins a subvolume of this name, which is one part of a path. An earlier unfinished one stays
    /// as it is.
    fn begin(&mut self, name: &[u8], sent: Origin, base: Base<'_>) -> Result<(), CommandProblem>;

    /// Applies a command to the content of the subvolume.
    fn apply(&mut self, command: &Command<'_>) -> Result<(), CommandError>;

    /// Applies deferred commands. After an error it is called again, for the next one.
    fn apply_deferred(&mut self) -> Result<(), CommandError>;

    /// Makes a read-only snapshot `name` of the subvolume, with all commands that were applied. None
    /// may be deferred. Durable on return.
    fn take_checkpoint(&mut self, name: &str) -> Result<(), CommandProblem>;

    /// Makes the subvolume read-only and records its source. Durable on return.
    fn finish(&mut self) -> Result<(), CommandProblem>;
}

/// The subvolume in the state `wanted`, among those with its uuid and those that were received from
/// it. Each candidate comes with its uuid, its received uuid, and their transactions.
///
/// A subvolume that returned to its source's file system is known there by its own uuid there, but
/// by the transaction of the other file system. So if no transaction matches, a subvolume with the
/// right uuid is chosen, received ones before others.
///
/// A stream comes from a stranger and shows what is in the subvolume. So one that was not received
/// has to be read-only, as everything that a sender builds on is.
pub(super) fn choose<T>(
    candidates: Vec<(Candidate, T)>,
    wanted: Origin,
) -> Result<T, CommandProblem> {
    let uuid = wanted.uuid;
    let is_received =
        |candidate: &Candidate| candidate.received.is_some_and(|origin| origin.uuid == uuid);
    let missing = if candidates.is_empty() {
        CommandProblem::NotReceived { uuid }
    } else {
        CommandProblem::Writable { uuid }
    };
    let rank = |candidate: &Candidate| {
        let received = candidate.received == Some(wanted);
        let own = candidate.own == wanted;
        (received, own, is_received(candidate))
    };
    candidates
        .into_iter()
        .filter(|(candidate, _)| candidate.is_read_only || is_received(candidate))
        .max_by_key(|(candidate, _)| rank(candidate))
        .map(|(_, found)| found)
        .ok_or(missing)
}

/// The identities of a subvolume.
pub(super) struct Candidate {
    /// Its own uuid, and the transaction that last changed it.
    pub(super) own: Origin,
    /// The source that it was received from, if it was received.
    pub(super) received: Option<Origin>,
    pub(super) is_read_only: bool,
}
