//! Writing data back: it is put on the devices, then the trees say where it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_format::compression::Algorithm;
use larder_format::feature::IncompatFlags;
use larder_format::item::InodeFlags;
use larder_transaction::Handle;
use parking_lot::Mutex;

use super::compress::Plan;
use super::extents::FileExtents;
use super::node::{Node, NodeId, NodeState};
use super::write_data::WrittenData;
use super::{Changed, apply};
use crate::error::Result;
use crate::filesystem::Filesystem;

/// What takes no more than this, compressed or not, is kept in the tree, as the kernel does unless told
/// otherwise.
pub(super) const MOST_INLINE_BYTES: u64 = 2048;

/// Inodes with data that is not written back.
#[derive(Default)]
pub(super) struct DirtyNodes {
    nodes: Mutex<BTreeMap<NodeId, (Arc<Node>, u64)>>,
    len_bytes: AtomicU64,
}

impl DirtyNodes {
    /// Enters a node, whose state is locked, with so much dirty data.
    pub(super) fn insert(&self, node: &Arc<Node>, dirty_bytes: u64) {
        let before = self.nodes.lock().insert(node.id(), (node.clone(), dirty_bytes));
        self.len_bytes.fetch_add(dirty_bytes, Relaxed);
        self.len_bytes.fetch_sub(before.map_or(0, |(_, bytes)| bytes), Relaxed);
    }

    /// Takes a node, whose state is locked, out.
    fn remove(&self, node: &Node) {
        let before = self.nodes.lock().remove(&node.id());
        self.len_bytes.fetch_sub(before.map_or(0, |(_, bytes)| bytes), Relaxed);
    }

    /// Dirty data of all of them, in bytes.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Relaxed)
    }

    fn all(&self) -> Vec<Arc<Node>> {
        self.nodes.lock().values().map(|(node, _)| node.clone()).collect()
    }
}

/// All data of a file, as it is kept in the tree.
struct Inline {
    stored: Vec<u8>,
    compression: Option<Algorithm>,
}

impl Filesystem {
    /// Writes back what all files have in memory only. Goes on after an error, and returns the first.
    pub(super) fn flush_all(&self) -> Result<()> {
        let mut first_error = Ok(());
        for node in self.writer()?.dirty.all() {
            first_error = first_error.and(self.flush(&node));
        }
        first_error
    }

    /// Writes back what a file has in memory only; what was written before this call is in the
    /// running transaction then.
    pub(super) fn flush(&self, node: &Arc<Node>) -> Result<()> {
        let writer = self.writer()?;
        let _flushing = node.flushing.lock();
        // The room was promised when data became dirty: a commit that needs it must not wait for room.
        let handle = writer.manager.attach()?;
        let mut state = node.write();
        if state.is_clean() {
            return Ok(());
        }
        let item = writer.manager.root_item(node.id().subvolume);
        let is_gone = item.is_none_or(|(_, item)| item.refs.get() == 0);
        // Nobody has it open but the set of dirty nodes and this caller.
        let is_unused = node.is_unlinked() && Arc::strong_count(node) <= 2;
        if is_gone || is_unused {
            state.clean();
            writer.dirty.remove(node);
            return Ok(());
        }
        self.write_back(&handle, node, &mut state)?;
        drop(state);
        Ok(handle.end()?)
    }

    /// Writes back the data of a node, whose state is locked. After an error nothing has changed.
    pub(super) fn write_back(
        &self,
        handle: &Handle<'_>,
        node: &Arc<Node>,
        state: &mut NodeState,
    ) -> Result<()> {
        let writer = self.writer()?;
        let extents = node.file_extents(handle, self.sectorsize());
        let plan = self.compression_plan(node, state)?;
        let inline = self.inline_data(&extents, state, plan.as_ref())?;
        let WrittenData { written, gives_up } = match &inline {
            Some(_) => WrittenData::default(),
            None => self.write_data(&extents, state, plan.as_ref())?,
        };
        if let Some(plan) = plan {
            writer.note_compression(plan.algorithm().name().as_bytes());
        }
        if gives_up {
            state.item.flags = (state.item.flags() | InodeFlags::NOCOMPRESS).bits().into();
        }
        apply(handle, || {
            let mut nbytes = state.item.nbytes.get();
            if let Some(cut) = state.cut {
                nbytes = nbytes.saturating_sub(extents.drop_range(cut, u64::MAX)?);
            }
            if let Some(Inline { stored, compression }) = &inline {
                nbytes = nbytes.saturating_sub(extents.drop_range(0, self.sectorsize())?);
                extents.insert_inline(stored, state.size_bytes, *compression)?;
                nbytes += state.size_bytes;
            }
            for data in &written {
                let dropped_bytes = data.enter(&extents)?;
                nbytes = nbytes.saturating_sub(dropped_bytes) + data.added_bytes();
            }
            self.fill_holes(&extents, state, inline.is_some())?;
            state.item.nbytes = nbytes.into();
            state.item.size = state.size_bytes.into();
            state.item.transid = handle.generation().into();
            state.item.sequence += 1;
            node.put_item(state)
        })?;
        state.clean();
        writer.dirty.remove(node);
        Ok(())
    }

    /// Files up to this size, in bytes, are kept in the tree.
    pub fn most_inline_bytes(&self) -> u64 {
        MOST_INLINE_BYTES.min(self.sectorsize() - 1)
    }

    /// All of the file's data, if it is to be in the tree: it is short, dirty, and there is no more.
    fn inline_data(
        &self,
        extents: &FileExtents<'_>,
        state: &NodeState,
        plan: Option<&Plan>,
    ) -> Result<Option<Inline>> {
        let (size_bytes, sectorsize) = (state.size_bytes, self.sectorsize());
        let is_short = size_bytes > 0 && size_bytes <= sectorsize;
        if !is_short || !state.dirty.covers(0, sectorsize) {
            return Ok(None);
        }
        let is_cut = state.cut.is_some_and(|cut| cut <= sectorsize);
        if !is_cut && extents.has_any_from(sectorsize)? {
            return Ok(None);
        }
        let mut data = vec![0; size_bytes as usize];
        state.dirty.overlay(0, &mut data);
        let sector = self.volume().sectorsize();
        let stream = plan.and_then(|plan| plan.compress_inline(&data, sector));
        if let Some((plan, stored)) = plan.zip(stream)
            && stored.len() as u64 <= MOST_INLINE_BYTES
        {
            return Ok(Some(Inline { stored, compression: Some(plan.algorithm()) }));
        }
        let fits = size_bytes <= self.most_inline_bytes();
        Ok(fits.then_some(Inline { stored: data, compression: None }))
    }

    /// Where holes have items, enters those of what the file grew by.
    pub(super) fn fill_holes(
        &self,
        extents: &FileExtents<'_>,
        state: &NodeState,
        is_inline: bool,
    ) -> Changed<()> {
        let old_size_bytes = state.item.size.get();
        let has_hole_items = !self.volume().superblock().has_incompat(IncompatFlags::NO_HOLES);
        if !has_hole_items || is_inline || state.size_bytes <= old_size_bytes {
            return Ok(());
        }
        let whole = |size_bytes: u64| size_bytes.next_multiple_of(self.sectorsize());
        extents.fill_holes(whole(old_size_bytes), whole(state.size_bytes))
    }
}

impl NodeState {
    pub(super) fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.cut.is_none()
    }

    /// Forgets what is not written back.
    fn clean(&mut self) {
        self.dirty.clear();
        self.cut = None;
        self.promised = None;
    }
}
