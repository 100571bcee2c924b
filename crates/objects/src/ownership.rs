//! How a process becomes the writer of a device: it writes its name into the manifest.

use crate::error::ObjectsError;
use crate::head::{self, Follows, Stored, read_manifest};
use crate::id::ObjectId;
use crate::journal::{Kept, check_none_is_left};
use crate::manifest::{self, Manifest, Writer as Writing};
use crate::store::{Problem, Store};

/// So often an opening finds that the writer before has changed the manifest once more.
const MOST_ATTEMPTS: usize = 100;

/// So often an opening tries to make a copy.
const MOST_COPYING: usize = 8;

/// What an opening for writing may end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Right<'a> {
    /// The writing of another machine.
    ToAny,
    /// Nothing.
    ToClosed,
    /// The writing of another machine, if what the journal has can follow that.
    Continuing(&'a Kept),
}

/// The name of this machine.
pub(crate) fn this_host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    if host.is_empty() { "an unknown machine" } else { host }.to_owned()
}

/// This process, as the writer of a device from `now` on.
pub(crate) fn this_process(now: u64) -> Writing {
    Writing {
        nonce: uuid::Uuid::new_v4().into_bytes(),
        host: this_host(),
        pid: std::process::id(),
        journal: String::new(),
        journaled: None,
        since: now,
        is_done: false,
    }
}

/// Makes `writer` the device's writer. The one before may change the manifest at the same time, until
/// it finds out.
pub(crate) fn take_over(
    store: &dyn Store,
    writer: &Writing,
    right: Right<'_>,
) -> Result<(Manifest, Stored), ObjectsError> {
    for attempt in 0.. {
        let (mut manifest, found) = read_manifest(store)?;
        let before = manifest.writer.clone();
        match right {
            Right::Continuing(kept) if kept.is_dirty() => kept.check(store, &manifest)?,
            _ => check_none_is_left(store, &manifest, &writer.host)?,
        }
        if matches!(right, Right::ToClosed) && !before.is_done {
            let (store, by) = (store.name().to_owned(), before.to_string());
            return Err(ObjectsError::NotClosed { store, by });
        }
        if !before.is_done {
            let follows = head::end(store, &mut manifest, &writer.to_string())?;
            if let Follows::Hole(_) = follows {
                if read_manifest(store)?.1.version == found.version {
                    follows.check(store)?;
                }
                continue;
            }
        }
        let journaled = match right {
            Right::Continuing(kept) => kept.stored_of(store, &manifest)?,
            Right::ToAny | Right::ToClosed => None,
        };
        manifest.epoch = manifest.epoch.checked_add(1).ok_or_else(|| {
            ObjectsError::damaged(store, manifest::NAME, &"it was opened too often")
        })?;
        manifest.number += 1;
        manifest.next_flush = ObjectId::first_flush(manifest.epoch);
        manifest.writer = Writing { journaled, ..writer.clone() };
        match found.replaced(store, &manifest) {
            Err(error) if error.problem == Problem::Condition && attempt < MOST_ATTEMPTS => {}
            Err(error) => return Err(error.into()),
            Ok(stored) => {
                let is_continued = matches!(right, Right::Continuing(kept) if kept.is_dirty());
                if !before.is_done && !is_continued {
                    tracing::warn!(
                        "{}: {before} had it open for writing; what it has not flushed is lost, and \
                         it can write no more",
                        store.name()
                    );
                }
                return Ok((manifest, stored));
            }
        }
    }
    unreachable!("the last attempt returns")
}

/// Makes a copy of the manifest that begins an epoch before its first flush: the flushes of an earlier
/// one may not lead on to it, since checkpoints have states between them. Keys that may make no
/// copies are no reason to write nothing.
pub(crate) fn begin_with_a_copy(
    store: &dyn Store,
    stored: &mut Stored,
) -> Result<(), ObjectsError> {
    for attempt in 1.. {
        match stored.copy(store) {
            Ok(()) => return Ok(()),
            Err(error) if attempt >= MOST_COPYING => match error.problem {
                Problem::Denied => {
                    tracing::warn!("{error}; there is no copy of this manifest");
                    return Ok(());
                }
                _ => return Err(error.into()),
            },
            Err(_) => {}
        }
    }
    unreachable!("the last attempt returns")
}
