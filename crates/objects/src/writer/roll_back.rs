//! Going back to an earlier state.

use std::collections::HashMap;

use super::{Writer, changes};
use crate::error::ObjectsError;
use crate::head::find_state;
use crate::id::{Kind, ObjectId};
use crate::manifest::TailSegment;
use crate::map::{NewCheckpoint, ObjectRecord};
use crate::past::Past;
use crate::state_name::StateName;
use crate::states::State;

impl Writer {
    /// Makes a new state with the content of a kept state. Those in between stay kept.
    ///
    /// Nobody uses what was read from the device before.
    pub(crate) fn roll_back(&self, to: &StateName) -> Result<State, ObjectsError> {
        self.flush()?;
        let mut commit = self.commit.lock();
        self.shared.check()?;
        let store = self.store();
        let to = find_state(store, &commit.manifest, to)?;
        let past = Past::read(store, &commit.manifest, to)?;
        let old = past.checkpoint.read_objects(store)?;
        let now = self.clock.now_after(commit.manifest.state().time);
        let state = State { number: commit.manifest.state().number + 1, time: now };
        let id = self.open.lock().new_id();
        let live: HashMap<ObjectId, u64> = old.iter().map(|it| (it.id, it.live_bytes)).collect();
        let known = commit.objects.iter().copied();
        let tail = commit.manifest.tail.iter().map(TailSegment::record);
        let objects: Vec<_> = known
            .chain(tail)
            .map(|object| ObjectRecord {
                live_bytes: live.get(&object.id).copied().unwrap_or(0),
                ..object
            })
            .collect();
        let changes = changes(&past.tail);
        let mut new =
            NewCheckpoint::after(&past.checkpoint, store, &changes, objects, id, state.number)?;
        for object in &mut new.objects {
            let has_nodes = object.kind == Kind::Map && past.checkpoint.has_nodes_in(object.id);
            if object.live_bytes > 0 || has_nodes {
                // It is needed again, and still there: a kept state needed it.
                object.died = None;
            }
        }
        let gone = commit.manifest.tail.iter().map(|segment| segment.id).collect();
        let manifest = commit.manifest.clone();
        self.shared.recording(|| {
            self.install(&mut commit, manifest, new, &past.checkpoint, &old, state)?;
            self.shared.patiently(|| Ok(commit.copy(store)?))
        })?;
        let _no_writer = self.open.lock();
        self.shared.content.recent.forget(&gone);
        Ok(state)
    }
}
