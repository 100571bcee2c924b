//! Making holes.

use larder_format::feature::IncompatFlags;

use super::apply;
use super::extents::FileExtents;
use crate::error::{Error, Result};
use crate::inode::Inode;

impl Inode {
    /// Makes `len_bytes` of the regular file from `offset` on a hole: they read as zeros, and whole sectors
    /// among them take no space any more. The size stays as it is.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), and `EINVAL` if `len_bytes` is 0.
    pub fn punch_hole(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let writer = self.writer_of_file()?;
        if len_bytes == 0 {
            return Err(Error::Invalid("a hole of no length"));
        }
        let (node, filesystem) = (self.node()?, self.subvolume().filesystem());
        let sectorsize = filesystem.sectorsize();
        let promised = writer.promise(2 * sectorsize, 4)?;
        let _flushing = node.flushing.lock();
        let handle = writer.manager.attach()?;
        self.subvolume().live()?.check_writable()?;
        let mut state = node.write();
        state.check_may_cut(0)?;
        state.absorb(promised);
        // What lies behind the end is left as it is.
        let end = offset.saturating_add(len_bytes).min(state.size_bytes);
        if end > offset {
            let whole = offset.next_multiple_of(sectorsize)..end - end % sectorsize;
            self.zero(&mut state, offset..end.min(whole.start))?;
            self.zero(&mut state, offset.max(whole.end)..end)?;
            state.touch(handle.generation(), true);
            writer.dirty.insert(node, state.dirty.len_bytes());
            filesystem.write_back(&handle, node, &mut state)?;
            if !whole.is_empty() {
                let (tree, id) = (node.tree(), node.id());
                let extents = FileExtents { tree, id, handle: &handle, sectorsize };
                let superblock = filesystem.volume().superblock();
                apply(&handle, || {
                    let dropped_bytes = extents.drop_range(whole.start, whole.end)?;
                    if !superblock.has_incompat(IncompatFlags::NO_HOLES) {
                        extents.fill_holes(whole.start, whole.end)?;
                    }
                    state.item.nbytes =
                        (state.item.nbytes.get().saturating_sub(dropped_bytes)).into();
                    node.put_item(&state)
                })?;
            }
        }
        drop(state);
        Ok(handle.end()?)
    }
}
