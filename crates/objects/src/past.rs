//! What a kept state consists of.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::each::each;
use crate::error::ObjectsError;
use crate::manifest::{Manifest, Mark, TailSegment};
use crate::map::Checkpoint;
use crate::segment;
use crate::states::State;
use crate::store::Store;

/// A kept state: a checkpoint, and what was written after it.
pub(crate) struct Past {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) tail: Vec<TailSegment>,
}

impl Past {
    /// The state `state`, which `manifest` keeps.
    pub(crate) fn read(
        store: &dyn Store,
        manifest: &Manifest,
        state: State,
    ) -> Result<Self, ObjectsError> {
        let is_it = |mark: &&Mark| mark.state == state;
        if let Some(mark) = manifest.marks.iter().find(is_it) {
            let checkpoint = Checkpoint::load(store, manifest.root)?;
            return Ok(Self { checkpoint, tail: manifest.tail[..mark.segments as usize].to_vec() });
        }
        let found =
            manifest.earlier.iter().find_map(|era| Some((era, era.marks.iter().find(is_it)?)));
        let (era, mark) = found.expect("it is in one of the lists");
        let checkpoint = Checkpoint::load(store, era.root)?;
        let segments = &era.segments[..mark.segments as usize];
        let deltas = Mutex::new(HashMap::new());
        each(
            segments,
            |(id, len_bytes)| {
                let read = segment::read_deltas(store, *id, *len_bytes)?;
                deltas.lock().insert(*id, read);
                Ok(())
            },
            |_| (),
        )?;
        let mut deltas = deltas.into_inner();
        let tail = segments.iter().map(|(id, len_bytes)| TailSegment {
            id: *id,
            len_bytes: *len_bytes,
            born: state.number,
            deltas: deltas.remove(id).unwrap_or_default(),
        });
        Ok(Self { checkpoint, tail: tail.collect() })
    }
}
