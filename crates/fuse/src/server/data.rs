//! Content of files.

use rustix::io::Errno;

use super::nodes::Node;
use super::{Call, Outcome, Server, failed};
use crate::protocol::Reply;
use crate::protocol::abi::{
    FallocateIn, LseekIn, LseekOut, ReadIn, WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const FALLOC_FL_KEEP_SIZE: u32 = 0x1;
const FALLOC_FL_PUNCH_HOLE: u32 = 0x2;
/// The attribute that says what a program may do: it ends with a change of the program.
const CAPABILITY: &str = "security.capability";

impl Server {
    pub(super) fn read(&self, call: &Call<'_>, from: &ReadIn, reply: &mut Reply<'_>) -> Outcome {
        let file = self.node(call)?.file()?;
        let len = file.read_at(reply.room(from.size as usize), from.offset).map_err(failed)?;
        reply.filled(len);
        Ok(())
    }

    pub(super) fn write(
        &self,
        call: &Call<'_>,
        to: &WriteIn,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let node = self.node(call)?;
        node.file()?.write_at(data, to.offset).map_err(failed)?;
        Self::drop_capability(&node)?;
        if to.write_flags & WRITE_KILL_SUIDGID != 0 {
            Self::drop_set_id_bits(&node)?;
        }
        reply.put(&WriteOut { size: data.len() as u32, padding: 0 })
    }

    pub(super) fn lseek(&self, call: &Call<'_>, seek: &LseekIn, reply: &mut Reply<'_>) -> Outcome {
        let file = self.node(call)?.file()?;
        let found = match seek.whence {
            SEEK_DATA => file.seek_data(seek.offset),
            SEEK_HOLE => file.seek_hole(seek.offset),
            _ => return Err(Errno::INVAL),
        };
        reply.put(&LseekOut { offset: found.map_err(failed)? })
    }

    pub(super) fn fallocate(&self, call: &Call<'_>, range: &FallocateIn) -> Outcome {
        let file = self.node(call)?.file()?;
        if range.mode != FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE {
            return Err(Errno::OPNOTSUPP);
        }
        file.punch_hole(range.offset, range.length).map_err(failed)
    }

    pub(super) fn fsync(&self, call: &Call<'_>) -> Outcome {
        match self.node(call)?.file() {
            Ok(file) => file.sync(),
            Err(_) => self.filesystem.sync(),
        }
        .map_err(failed)
    }

    /// Removes what a program may do by its file, whose content changes.
    pub(super) fn drop_capability(node: &Node) -> Outcome {
        use std::sync::atomic::Ordering::Relaxed;
        if node.has_no_capability.load(Relaxed) {
            return Ok(());
        }
        match node.inode.xattr(CAPABILITY) {
            Ok(_) => node.inode.remove_xattr(CAPABILITY).map_err(failed)?,
            Err(error) if error.kind() == larder::ErrorKind::NoSuchAttribute => {}
            Err(error) => return Err(failed(error)),
        }
        node.has_no_capability.store(true, Relaxed);
        Ok(())
    }
}
