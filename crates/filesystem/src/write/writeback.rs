//! Writing data back: space is allocated, data written, then the trees say where it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_format::Logical;
use larder_format::feature::IncompatFlags;
use larder_format::item::{FileExtentItem, FileExtentKind, InodeFlags, MAX_EXTENT_BYTES};
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

/// Data that was written and that no tree says anything about yet.
struct Written {
    /// Where in the file it starts.
    start: u64,
    place: Place,
    /// Of what is on disk, where the file has any.
    checksums: Vec<u8>,
}

/// Where data was written.
enum Place {
    /// In an extent of its own.
    New(FileExtentItem),
    /// Where the file had room for it.
    InPlace { logical: Logical, len_bytes: u64 },
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
        let written = if inline.is_some() { Vec::new() } else { self.write_data(&extents, state)? };
        apply(handle, || {
            let mut nbytes = state.item.nbytes.get();
            if let Some(cut) = state.cut {
                nbytes = nbytes.saturating_sub(extents.drop_range(cut, u64::MAX)?);
            }
            if let Some(data) = &inline {
                nbytes = nbytes.saturating_sub(extents.drop_range(0, self.sectorsize())?);
                extents.insert_inline(data, data.len() as u64, None)?;
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

    /// Files up to this size, in bytes, are kept in the tree.
    pub fn most_inline_bytes(&self) -> u64 {
        MOST_INLINE_BYTES.min(self.sectorsize() - 1)
    }

    /// All of the file's data, if it is to be in the tree: it is short, dirty, and there is no more.
    fn inline_data(&self, extents: &FileExtents<'_>, state: &NodeState) -> Result<Option<Vec<u8>>> {
        let (size_bytes, sectorsize) = (state.size_bytes, self.sectorsize());
        let is_short = size_bytes > 0 && size_bytes <= self.most_inline_bytes();
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

    /// Writes the dirty data. After an error no new extent is left.
    fn write_data(&self, extents: &FileExtents<'_>, state: &NodeState) -> Result<Vec<Written>> {
        let mut written = Vec::new();
        for (start, pieces) in state.dirty.ranges() {
            let data = pieces.concat();
            if let Err(error) = self.write_range(extents, state, start, &data, &mut written) {
                self.abandon(&written)?;
                return Err(error);
            }
        }
        Ok(written)
    }

    /// Gives up the new extents among what was written.
    fn abandon(&self, written: &[Written]) -> Changed<()> {
        let new = written.iter().filter_map(|written| match &written.place {
            Place::New(item) => Some(item.extent),
            Place::InPlace { .. } => None,
        });
        for extent in new {
            let (logical, len_bytes) = (extent.disk_bytenr.get(), extent.disk_num_bytes.get());
            self.give_up(DataExtent { logical: Logical(logical), len_bytes })?;
        }
        Ok(())
    }

    /// Gives back space that was taken for data and that no tree says anything about.
    pub(super) fn give_up(&self, data: DataExtent) -> Changed<()> {
        let space = self.try_writer().expect("it is open for writing").manager().space();
        space.abandoned(&(data.logical.0..data.logical.0 + data.len_bytes))
    }

    /// Writes `data`, which the file has at `start`.
    fn write_range(
        &self,
        extents: &FileExtents<'_>,
        state: &NodeState,
        start: u64,
        data: &[u8],
        written: &mut Vec<Written>,
    ) -> Result<()> {
        let has_checksums = !state.item.flags().contains(InodeFlags::NODATASUM);
        let sums_of = |data: &[u8]| if has_checksums { self.sums_of(data) } else { Vec::new() };
        for target in extents.targets(state, start..start + data.len() as u64)? {
            let (from, to) = (target.range.start, target.range.end);
            let mut rest = &data[(from - start) as usize..(to - start) as usize];
            if let Some(logical) = target.place {
                self.volume().write(logical, rest).map_err(larder_transaction::Error::from)?;
                let place = Place::InPlace { logical, len_bytes: rest.len() as u64 };
                written.push(Written { start: from, place, checksums: sums_of(rest) });
                continue;
            }
            let mut at = from;
            while !rest.is_empty() {
                let extent = self.allocate_data(rest.len() as u64)?;
                let part = rest.split_off(..extent.len_bytes as usize).expect("no more than asked");
                let item = extents.item(FileExtentKind::Regular, extent, extent.len_bytes, None);
                let place = Place::New(item);
                written.push(Written { start: at, place, checksums: sums_of(part) });
                self.volume()
                    .write(extent.logical, part)
                    .map_err(larder_transaction::Error::from)?;
                at += extent.len_bytes;
            }
        }
        Ok(())
    }

    /// Takes space for an extent of `wanted_bytes`, whole sectors, or of fewer.
    pub(super) fn allocate_data(&self, wanted_bytes: u64) -> Changed<DataExtent> {
        let space = self.try_writer().expect("it is open for writing").manager().space();
        let wanted_bytes = wanted_bytes.min(MAX_EXTENT_BYTES);
        let (logical, len_bytes) = space.allocate_data(wanted_bytes, self.sectorsize())?;
        Ok(DataExtent { logical, len_bytes })
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

/// Enters data that was written, in the place of what the file has there. Returns how many bytes are
/// allocated to the file after that.
fn enter(extents: &FileExtents<'_>, written: &[Written], nbytes: u64) -> Changed<u64> {
    let mut nbytes = nbytes;
    for Written { start, place, checksums } in written {
        let logical = match place {
            Place::New(item) => {
                let len_bytes = item.extent.num_bytes.get();
                let dropped_bytes = extents.drop_range(*start, start + len_bytes)?;
                nbytes = nbytes.saturating_sub(dropped_bytes) + len_bytes;
                extents.insert_new(*start, item)?;
                Logical(item.extent.disk_bytenr.get())
            }
            Place::InPlace { logical, len_bytes } => {
                extents.mark_written(*start, start + len_bytes)?;
                *logical
            }
        };
        if !checksums.is_empty() {
            extents.handle.insert_checksums(logical, checksums)?;
        }
    }
    Ok(nbytes)
}
