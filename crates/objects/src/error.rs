//! Errors of devices of objects.

use std::fmt;
use std::io;

use larder_platform::errno::in_words;

use crate::store::{Problem, Store, StoreError};

/// What went wrong with a device of objects. Every text names the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectsError {
    /// A request failed.
    #[error(transparent)]
    Store(StoreError),

    /// There is no device here.
    #[error("{store}: there is no file system here; --create SIZE makes one")]
    Missing {
        /// The store's name.
        store: String,
    },

    /// There is a device here already.
    #[error("{store}: there is a file system here already")]
    Exists {
        /// The store's name.
        store: String,
    },

    /// The manifest of a device is gone, and copies of it are there.
    #[error(
        "{store}: the manifest of the file system that was here is gone; 'larder objects rebuild' \
         writes it anew"
    )]
    Lost {
        /// The store's name.
        store: String,
    },

    /// There is nothing to rebuild.
    #[error("{store}: its manifest is as it was written, and needs no rebuilding")]
    Sound {
        /// The store's name.
        store: String,
    },

    /// An object does not hold what it must.
    #[error("{object}: {why}")]
    Damaged {
        /// The store's name and the object's.
        object: String,
        /// What is wrong.
        why: String,
    },

    /// Another writer has opened the device.
    #[error("{store}: {by} has opened it for writing since; nothing more can be written from here")]
    Fenced {
        /// The store's name.
        store: String,
        /// The other writer.
        by: String,
    },

    /// A writer of this machine has the device open.
    #[error("{store}: {by} has it open for writing")]
    InUse {
        /// The store's name.
        store: String,
        /// That writer.
        by: String,
    },

    /// A writer has the device open, or ended without closing it.
    #[error(
        "{store}: {by} has it open for writing, or ended without closing it; mount it once if it \
         has ended, or end its writing with --take-over"
    )]
    NotClosed {
        /// The store's name.
        store: String,
        /// That writer.
        by: String,
    },

    /// The store is a web server, or lacks what writing needs.
    #[error("{store}: it takes no writes with conditions, so it can only be read")]
    OnlyForReading {
        /// The store's name.
        store: String,
    },

    /// The store ignores conditions.
    #[error(
        "{store}: it accepts a write whose condition does not hold, so two writers would damage \
         what is there; it can only be read"
    )]
    Unconditional {
        /// The store's name.
        store: String,
    },

    /// An earlier request failed, and the device takes no changes any more.
    #[error("nothing more can be written, since an earlier request failed: {why}")]
    Failed {
        /// The error then.
        why: String,
    },

    /// No such state is kept.
    #[error("{store}: no state '{state}' is kept; 'larder objects states' lists those that are")]
    NoSuchState {
        /// The store's name.
        store: String,
        /// What the caller asked for.
        state: String,
    },

    /// Objects of a state that is kept no longer are gone.
    #[error(
        "{store}: state {state} is kept no longer, and its content has been deleted; open the last \
         state, or one that 'larder objects states' lists"
    )]
    Gone {
        /// The store's name.
        store: String,
        /// The number of the state.
        state: u64,
    },

    /// Clones share the objects of the device.
    #[error("{store}: clones of it are there, and need its objects: {clones}; delete those first")]
    HasClones {
        /// The store's name.
        store: String,
        /// The ways to the clones.
        clones: String,
    },

    /// Readers hold leases on the device.
    #[error(
        "{store}: somebody reads it: {readers}; unmount it there, or wait ten minutes if that machine \
         has gone"
    )]
    IsRead {
        /// The store's name.
        store: String,
        /// The readers.
        readers: String,
    },

    /// Another device is where this one was.
    #[error("{store}: another file system is here now; unmount, and mount that one")]
    Replaced {
        /// The store's name.
        store: String,
    },

    /// A variable of the environment has a wrong value.
    #[error("{name}: {why}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// What is wrong with its value.
        why: String,
    },

    /// What is encrypted needs a key.
    #[error(
        "{store}: encryption needs a key, and none is given: name a file that holds it in \
         LARDER_KEY_FILE, or a command that prints it in LARDER_KEY_COMMAND"
    )]
    NoKey {
        /// The store's name.
        store: String,
    },

    /// The user's key is not one of those here.
    #[error(
        "{store}: the key that {name} gives is none of those here; nothing was read or changed. \
         'larder objects key list' shows when they were made"
    )]
    WrongKey {
        /// The store's name.
        store: String,
        /// The variable or option that gives the key.
        name: &'static str,
    },

    /// The user gives a key, and nothing here is encrypted.
    #[error(
        "{store}: {name} gives a key, and nothing here is encrypted; make something encrypted with \
         --encrypt, or unset {name} to use what is here without encryption"
    )]
    NotEncrypted {
        /// The store's name.
        store: String,
        /// The variable or option that gives the key.
        name: &'static str,
    },

    /// There are no keys here.
    #[error("{store}: nothing here is encrypted, so that there are no keys")]
    NoKeys {
        /// The store's name.
        store: String,
    },

    /// What is here is not encrypted, and stays so.
    #[error(
        "{store}: what is here is not encrypted, and cannot become so; choose another place for \
         what is to be encrypted"
    )]
    NotEmpty {
        /// The store's name.
        store: String,
    },

    /// There is no such key here.
    #[error("{store}: there is no key {id}; 'larder objects key list' shows those that are there")]
    NoSuchKey {
        /// The store's name.
        store: String,
        /// What the caller asked for.
        id: String,
    },

    /// Without this key nobody could read anything.
    #[error("{store}: this is the last key, without which nobody can read anything; add another")]
    LastKey {
        /// The store's name.
        store: String,
    },

    /// There is no room for another key.
    #[error("{store}: there are 16 keys, and no more can be; remove one first")]
    TooManyKeys {
        /// The store's name.
        store: String,
    },

    /// There is no catalogue of streams here.
    #[error("{store}: there are no streams here; 'larder send --to' puts them into a store")]
    NoStreams {
        /// The store's name.
        store: String,
    },

    /// The catalogue has no such stream.
    #[error(
        "{store}: no stream is called '{name}'; 'larder streams list' shows those that are there"
    )]
    NoSuchStream {
        /// The store's name.
        store: String,
        /// What the caller asked for.
        name: String,
    },

    /// The name fits several streams.
    #[error("{store}: several streams are called '{name}'; choose one by its id: {ids}")]
    Ambiguous {
        /// The store's name.
        store: String,
        /// What the caller asked for.
        name: String,
        /// The ids of the streams.
        ids: String,
    },

    /// A stream needs a snapshot that is nowhere.
    #[error(
        "{store}: the stream of {name} builds on the snapshot with the uuid {uuid}, of which there \
         is no stream here; receive that snapshot from elsewhere first, or send {name} whole"
    )]
    NotThere {
        /// The store's name.
        store: String,
        /// The name of the snapshot.
        name: String,
        /// The uuid of the one that it needs.
        uuid: String,
    },

    /// A stream stays, and needs one that should go.
    #[error("{store}: {needed}; name those too, or prune with --dependents")]
    Needed {
        /// The store's name.
        store: String,
        /// Which stream needs which.
        needed: String,
    },

    /// A prune has removed the parts of a send that was still going on.
    #[error("{store}: the parts of this stream were pruned while it was sent; send it again")]
    Pruned {
        /// The store's name.
        store: String,
    },

    /// A journal on a disk of this machine cannot be used.
    #[error("{journal}: {why}")]
    Journal {
        /// Where it is.
        journal: String,
        /// Why not.
        why: String,
    },

    /// Another writer has written since a journal was used.
    #[error(
        "{store}: the journal {journal} has {flushes} flushes ({bytes} bytes) that the store may \
         lack, and {by} has opened it for writing since, so they are not applied. 'larder objects clone \
         --journal {journal}' makes a copy of state {state} that has them; remove the journal to \
         give them up"
    )]
    Superseded {
        /// The store's name.
        store: String,
        /// Where the journal is.
        journal: String,
        /// How many flushes it has.
        flushes: u64,
        /// How much that is.
        bytes: u64,
        /// The other writer.
        by: String,
        /// The state that the flushes follow.
        state: u64,
    },

    /// A journal does not lead on from what the store has.
    #[error(
        "{store}: the journal {journal} has {flushes} flushes ({bytes} bytes) that do not follow what \
         is in the store, since one of the two is an older copy; they are not applied. 'larder objects \
         clone --journal {journal}' makes a copy of state {state} that has them; remove the journal \
         to give them up"
    )]
    OlderCopy {
        /// The store's name.
        store: String,
        /// Where the journal is.
        journal: String,
        /// How many flushes it has.
        flushes: u64,
        /// How much that is.
        bytes: u64,
        /// The state that the flushes follow.
        state: u64,
    },

    /// A journal of this machine has what the store lacks.
    #[error(
        "{store}: the journal {journal} has what fsync made durable and the store may lack; mount it \
         with -o journal={journal}, or remove the journal to give that up"
    )]
    JournalLeft {
        /// The store's name.
        store: String,
        /// Where the journal is.
        journal: String,
    },

    /// The text is no address of a store.
    #[error("{text}: {why}")]
    Address {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

impl ObjectsError {
    pub(crate) fn damaged(store: &dyn Store, object: &str, why: &dyn fmt::Display) -> Self {
        Self::Damaged { object: format!("{}/{object}", store.name()), why: why.to_string() }
    }

    /// Whether the same request of a writer may succeed later, as long as the device is its own.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Store(error) if error.problem.is_passing())
    }

    /// Whether there is no room.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Store(error) if error.problem == Problem::Full)
    }

    /// The same as an error of the system.
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Store(error) => match error.problem {
                Problem::NotFound => io::ErrorKind::NotFound,
                Problem::Denied => io::ErrorKind::PermissionDenied,
                Problem::Full => io::ErrorKind::StorageFull,
                Problem::Temporary => io::ErrorKind::TimedOut,
                Problem::Unsupported => io::ErrorKind::Unsupported,
                Problem::Damaged => io::ErrorKind::InvalidData,
                Problem::Condition | Problem::Other => io::ErrorKind::Other,
            },
            Self::Missing { .. }
            | Self::NoSuchState { .. }
            | Self::Gone { .. }
            | Self::NoStreams { .. }
            | Self::NoSuchStream { .. }
            | Self::NotThere { .. }
            | Self::NoKeys { .. }
            | Self::NoSuchKey { .. }
            | Self::Pruned { .. } => io::ErrorKind::NotFound,
            Self::Exists { .. } | Self::NotEmpty { .. } => io::ErrorKind::AlreadyExists,
            Self::NoKey { .. } | Self::WrongKey { .. } => io::ErrorKind::PermissionDenied,
            Self::Journal { .. } => io::ErrorKind::Other,
            Self::InUse { .. }
            | Self::Superseded { .. }
            | Self::OlderCopy { .. }
            | Self::JournalLeft { .. }
            | Self::NotClosed { .. }
            | Self::Needed { .. }
            | Self::HasClones { .. }
            | Self::IsRead { .. } => io::ErrorKind::ResourceBusy,
            Self::Fenced { .. }
            | Self::Failed { .. }
            | Self::OnlyForReading { .. }
            | Self::Unconditional { .. } => io::ErrorKind::ReadOnlyFilesystem,
            Self::Address { .. }
            | Self::Ambiguous { .. }
            | Self::NotEncrypted { .. }
            | Self::LastKey { .. }
            | Self::TooManyKeys { .. }
            | Self::Setting { .. }
            | Self::Sound { .. } => io::ErrorKind::InvalidInput,
            Self::Damaged { .. } | Self::Lost { .. } | Self::Replaced { .. } => {
                io::ErrorKind::InvalidData
            }
        }
    }
}

/// A damaged object is one, whoever finds it out.
impl From<StoreError> for ObjectsError {
    fn from(error: StoreError) -> Self {
        match error.problem {
            Problem::Damaged => {
                Self::Damaged { object: error.object, why: in_words(&*error.source) }
            }
            _ => Self::Store(error),
        }
    }
}

impl From<ObjectsError> for io::Error {
    fn from(error: ObjectsError) -> Self {
        Self::new(error.kind(), error)
    }
}
