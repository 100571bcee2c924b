//! A reader's lease: while a device is open for reading, nothing is deleted that it may read.
//!
//! # Invariants
//! - What a device reads is safe without a lease for a while: no object that its state needs was
//!   doomed when it was opened, and a doomed one stays for [`delete_after`](crate::Info). From then on
//!   there is a lease on all states that are read, or somebody is told that there is none.
//! - Where that is too short, or a copy of the manifest does not tell what is doomed, the reader makes
//!   its lease first, and then looks which states there are.
//! - A reader that follows holds on all states from the oldest on that it reads. So the next one is
//!   held before the reader knows it.
//! - A lease that may have ended before the next one began is not trusted: the reader looks whether
//!   its states are still kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::ObjectsError;
use crate::head::{self, Source};
use crate::lease::{HOLDS, Lease, new_name};
use crate::manifest::Manifest;
use crate::ownership::this_process;
use crate::store::{Problem, Store};
use crate::watch::Watch;

/// After so long a reader makes its first lease, or one that holds on what it has chosen. Most
/// have ended by then.
const FIRST_AFTER: Duration = Duration::from_secs(10);

/// If objects stay no longer than that, a reader makes its lease before it reads.
const SHORT: Duration = Duration::from_secs(60);

/// So often a lease is followed by another one.
const PERIOD: Duration = Duration::from_secs(HOLDS / 3);

/// After an error the next attempt comes sooner.
const AFTER_ERROR: Duration = Duration::from_secs(10);

/// The lease of one reader, for all states that it reads.
#[derive(Debug)]
pub(crate) struct Reading {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A state that is read, until this is dropped.
#[derive(Debug)]
pub(crate) struct Read {
    reading: Arc<Reading>,
    state: u64,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    watch: Watch,
    reader: String,
    wanted: Mutex<Wanted>,
    changed: Condvar,
    /// Locked while a lease is made.
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Wanted {
    /// How many devices read each state.
    states: BTreeMap<u64, usize>,
    /// The reader may go on to any later state.
    follows: bool,
    /// Until when what is read is safe, by the time since this machine started.
    safe_until: Duration,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Made {
    name: Option<String>,
    /// The first state on which it holds, and the last one.
    states: (u64, Option<u64>),
    /// The keys may not make any, and somebody was told.
    is_denied: bool,
    is_told: bool,
}

impl Reading {
    /// A reader of `store`.
    pub(crate) fn begin(store: &Arc<dyn Store>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            store: Arc::clone(store),
            watch: store.watch().unwrap_or_default(),
            reader: this_process(0).to_string(),
            wanted: Mutex::default(),
            changed: Condvar::new(),
            made: Mutex::default(),
        });
        let seen = Arc::clone(&shared);
        let renew = move || seen.keep_renewing();
        let thread = thread::Builder::new().name("larder-lease".to_owned()).spawn(renew);
        let thread = Some(thread.expect("the system starts threads"));
        Arc::new(Self { shared, thread })
    }

    /// Looks for the manifest, and holds on the states from the one on that `choose` finds there, if
    /// this reader must not wait with its lease. Returns what this was `since`, too.
    pub(crate) fn look<T>(
        &self,
        choose: impl Fn(&Manifest) -> Result<(T, u64), ObjectsError>,
    ) -> Result<(Manifest, T, Duration), ObjectsError> {
        let store = &*self.shared.store;
        let look = || {
            let since = store.timer().now();
            let (manifest, source) = head::read_from(store)?;
            let (chosen, first) = choose(&manifest)?;
            Ok::<_, ObjectsError>((manifest, source, chosen, first, since))
        };
        let (mut manifest, source, mut chosen, first, mut since) = look()?;
        let stays = Duration::from_secs(manifest.delete_after) >= SHORT;
        if (source == Source::Copy || !stays) && self.may_hold() {
            // What it needs may go between this moment and the lease.
            self.hold_from(first);
            (manifest, _, chosen, _, since) = look()?;
        }
        Ok((manifest, chosen, since))
    }

    /// Whether there is no lease yet, and there may be one.
    fn may_hold(&self) -> bool {
        let made = self.shared.made.lock();
        made.name.is_none() && !made.is_denied
    }

    /// Holds on all states from `first` on, at once.
    fn hold_from(&self, first: u64) {
        let mut wanted = self.shared.wanted.lock();
        wanted.states.entry(first).or_default();
        let follows = std::mem::replace(&mut wanted.follows, true);
        drop(wanted);
        self.shared.renew_and_tell();
        let mut wanted = self.shared.wanted.lock();
        wanted.follows = follows;
        wanted.states.retain(|_, readers| *readers > 0);
    }

    /// The reader may go on to any later state from now on.
    pub(crate) fn follow(&self) {
        let before = std::mem::replace(&mut self.shared.wanted.lock().follows, true);
        if !before && self.shared.made.lock().name.is_some() {
            self.shared.renew_and_tell();
        }
    }

    /// Makes the next lease.
    pub(crate) fn renew(&self) {
        self.shared.renew_and_tell();
    }

    /// Notes that `state` is read, which `manifest` had when the reader looked, `since` after this
    /// machine started.
    pub(crate) fn note(self: &Arc<Self>, state: u64, manifest: &Manifest, since: Duration) -> Read {
        let mut wanted = self.shared.wanted.lock();
        *wanted.states.entry(state).or_default() += 1;
        let safe_until = since + Duration::from_secs(manifest.delete_after);
        wanted.safe_until = wanted.safe_until.max(safe_until);
        drop(wanted);
        let made = self.shared.made.lock();
        let is_earlier = made.name.is_some() && state < made.states.0;
        drop(made);
        if is_earlier {
            // Somebody has set the store back.
            self.shared.renew_and_tell();
        }
        Read { reading: Arc::clone(self), state }
    }
}

impl Read {
    /// The reader.
    pub(crate) fn reading(&self) -> &Arc<Reading> {
        &self.reading
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        let mut wanted = self.reading.shared.wanted.lock();
        if let Some(readers) = wanted.states.get_mut(&self.state) {
            *readers -= 1;
            if *readers == 0 {
                wanted.states.remove(&self.state);
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.shared.wanted.lock().has_ended = true;
        self.shared.changed.notify_all();
        // A thread that waits for the store ends by itself, and so does its lease.
        let Some(mut made) = self.shared.made.try_lock() else { return };
        let name = made.name.take();
        drop(made);
        // One that panicked has been reported.
        let _ = self.thread.take().map(JoinHandle::join);
        let is_there = self.shared.store.trouble().is_none();
        if let Some(name) = name.filter(|_| is_there)
            && let Err(error) = self.shared.store.delete(&name)
        {
            tracing::debug!("{error}; a lease stays until it ends");
        }
        self.shared.watch.note_lease(None);
    }
}

impl Shared {
    fn keep_renewing(&self) {
        let mut pause = FIRST_AFTER;
        loop {
            let mut wanted = self.wanted.lock();
            if !wanted.has_ended {
                self.store.timer().wait(&self.changed, &mut wanted, pause);
            }
            if wanted.has_ended {
                return;
            }
            drop(wanted);
            pause = if self.renew_and_tell() { PERIOD } else { AFTER_ERROR };
        }
    }

    /// Makes the next lease. Returns whether there is no need to try again soon.
    fn renew_and_tell(&self) -> bool {
        let mut made = self.made.lock();
        if made.is_denied {
            return true;
        }
        match self.renew(&mut made) {
            Ok(()) => made.is_told = false,
            Err(ObjectsError::Store(error))
                if matches!(error.problem, Problem::Denied | Problem::Unsupported) =>
            {
                tracing::warn!(
                    "{}: this reader holds no lease, since it cannot write there: once the state that \
                     it reads is kept no longer, its content may be deleted, and reading fails",
                    self.store.name()
                );
                made.is_denied = true;
            }
            Err(error) => {
                if !std::mem::replace(&mut made.is_told, true) {
                    tracing::warn!("{error}; there is no new lease, and the one before will end");
                }
                return false;
            }
        }
        true
    }

    fn renew(&self, made: &mut MutexGuard<'_, Made>) -> Result<(), ObjectsError> {
        let wanted = self.wanted.lock();
        let Some((&first, _)) = wanted.states.first_key_value() else { return Ok(()) };
        let last = wanted.states.last_key_value().map(|(last, _)| *last);
        let last = last.filter(|_| !wanted.follows);
        drop(wanted);
        let (began, name) = (self.store.timer().now(), new_name());
        let lease = Lease { first, last, holds: HOLDS, reader: self.reader.clone() };
        self.store.create(&name, lease.encode(&name))?;
        let until = began + Duration::from_secs(HOLDS);
        let before = made.name.replace(name);
        made.states = (first, last);
        let safe_until = {
            let mut wanted = self.wanted.lock();
            std::mem::replace(&mut wanted.safe_until, until)
        };
        self.watch.note_lease(Some((self.store.timer(), until)));
        if let Some(before) = before {
            // It ends by itself.
            let _ = self.store.delete(&before);
        }
        if self.store.timer().now() >= safe_until {
            self.check_kept(first)?;
        }
        Ok(())
    }

    /// Warns if a state may be incomplete: it is kept no longer, and was not held for a while.
    fn check_kept(&self, state: u64) -> Result<(), ObjectsError> {
        let manifest = head::read(&*self.store)?;
        if manifest.states().all(|kept| kept.number != state) {
            tracing::warn!(
                "{}: state {state} is kept no longer, and its lease had ended: some of its content may \
                 have been deleted",
                self.store.name()
            );
        }
        Ok(())
    }
}
