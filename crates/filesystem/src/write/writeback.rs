//! Writing data back: space is allocated, data written, then the trees say where it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_format::feature::IncompatFlags;
use larder_format::item::{InodeFlags, MAX_EXTENT_BYTES};
use larder_transaction::{DataExtent, Handle};
use parking_lot::Mutex;

use super::extents::FileExtents;
use super::node::{Node, NodeId, NodeState};
use super::{Changed, apply};
use crate::error::Result;
use crate::filesystem::Filesystem;

/// Files up to this size are kept in the tree, as the kernel does unless told otherwise.
const MOST_INLINE_BYTES: u64 = 2048;

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

/// Data that was written and is in no tree yet.
struct Written {
    /// Where in the file it starts.
    start: u64,
    extent: DataExtent,
    checksums: Vec<u8>,
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
        let extents =
            FileExtents { tree: node.tree(), id: node.id(), handle, sectorsize: self.sectorsize() };
        let inline = self.inline_data(&extents, state)?;
        let written = if inline.is_some() { Vec::new() } else { self.write_data(state)? };
        apply(handle, || {
            let mut nbytes = state.item.nbytes.get();
            if let Some(cut) = state.cut {
                nbytes = nbytes.saturating_sub(extents.drop_range(cut, u64::MAX)?);
            }
            if let Some(data) = &inline {
                nbytes = nbytes.saturating_sub(extents.drop_range(0, self.sectorsize())?);
                extents.insert_inline(data)?;
                nbytes += data.len() as u64;
            }
            nbytes = enter(&extents, &written, nbytes)?;
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

    /// All of the file's data, if it is to be in the tree: it is short, dirty, and there is no more.
    fn inline_data(&self, extents: &FileExtents<'_>, state: &NodeState) -> Result<Option<Vec<u8>>> {
        let (size_bytes, sectorsize) = (state.size_bytes, self.sectorsize());
        let most_bytes = MOST_INLINE_BYTES.min(sectorsize - 1);
        let is_short = size_bytes > 0 && size_bytes <= most_bytes;
        if !is_short || !state.dirty.covers(0, sectorsize) {
            return Ok(None);
        }
        let is_cut = state.cut.is_some_and(|cut| cut <= sectorsize);
        if !is_cut && extents.has_any_from(sectorsize)? {
            return Ok(None);
        }
        let mut data = vec![0; size_bytes as usize];
        state.dirty.overlay(0, &mut data);
        Ok(Some(data))
    }

    /// Writes the dirty data to new extents. After an error none of them is left.
    fn write_data(&self, state: &NodeState) -> Result<Vec<Written>> {
        let mut written = Vec::new();
        let has_checksums = !state.item.flags().contains(InodeFlags::NODATASUM);
        for (start, pieces) in state.dirty.ranges() {
            let data = pieces.concat();
            if let Err(error) = self.write_range(start, &data, has_checksums, &mut written) {
                for Written { extent, .. } in written {
                    let range = extent.logical.0..extent.logical.0 + extent.len_bytes;
                    self.writer()?.manager.space().abandoned(&range)?;
                }
                return Err(error);
            }
        }
        Ok(written)
    }

    fn write_range(
        &self,
        start: u64,
        mut data: &[u8],
        has_checksums: bool,
        written: &mut Vec<Written>,
    ) -> Result<()> {
        let manager = self.writer()?.manager();
        let (mut start, sectorsize) = (start, self.sectorsize());
        while !data.is_empty() {
            let wanted_bytes = (data.len() as u64).min(MAX_EXTENT_BYTES);
            let (logical, len_bytes) = manager.space().allocate_data(wanted_bytes, sectorsize)?;
            let (part, rest) = data.split_at(len_bytes as usize);
            let checksums = if has_checksums { self.sums_of(part) } else { Vec::new() };
            written.push(Written { start, extent: DataExtent { logical, len_bytes }, checksums });
            self.volume().write(logical, part).map_err(larder_transaction::Error::from)?;
            start += len_bytes;
            data = rest;
        }
        Ok(())
    }

    fn sums_of(&self, data: &[u8]) -> Vec<u8> {
        let algorithm = self.volume().checksum_type();
        let mut sums = Vec::new();
        for sector in data.chunks(self.sectorsize() as usize) {
            sums.extend_from_slice(algorithm.compute(sector).as_bytes());
        }
        sums
    }

    /// Where holes have items, enters those of what the file grew by.
    fn fill_holes(
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
    fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.cut.is_none()
    }

    /// Forgets what is not written back.
    fn clean(&mut self) {
        self.dirty.clear();
        self.cut = None;
        self.promised = None;
    }
}

/// Puts data that was written in the place of what the file has there. Returns how many bytes are
/// allocated to the file after that.
fn enter(extents: &FileExtents<'_>, written: &[Written], nbytes: u64) -> Changed<u64> {
    let mut nbytes = nbytes;
    for Written { start, extent, checksums } in written {
        let end = start + extent.len_bytes;
        nbytes = nbytes.saturating_sub(extents.drop_range(*start, end)?);
        extents.insert_data(*start, *extent)?;
        nbytes += extent.len_bytes;
        if !checksums.is_empty() {
            extents.handle.insert_checksums(extent.logical, checksums)?;
        }
    }
    Ok(nbytes)
}
