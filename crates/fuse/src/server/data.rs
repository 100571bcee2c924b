//! Content of files.

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::{Call, Outcome, Server, failed};
use crate::protocol::Reply;
use crate::protocol::abi::{
    FallocateIn, LseekIn, LseekOut, NOTIFY_INVAL_INODE, NotifyInvalInodeOut, ReadIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const FALLOC_FL_KEEP_SIZE: u32 = 0x1;
const FALLOC_FL_PUNCH_HOLE: u32 = 0x2;

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
        let file = node.file()?;
        let written = if to.write_flags & WRITE_CACHE != 0 {
            file.write_keeping_times(data, to.offset)
        } else {
            file.write_at(data, to.offset)
        };
        written.map_err(failed)?;
        if to.write_flags & WRITE_KILL_SUIDGID != 0 || node.may_have_capability()? {
            node.inode.drop_privileges().map_err(failed)?;
        }
        reply.put(&WriteOut { size: data.len() as u32, padding: 0 })
    }

    pub(super) fn lseek(&self, call: &Call<'_>, seek: &LseekIn, reply: &mut Reply<'_>) -> Outcome {
        let file = self.node(call)?.file()?;
        // The kernel may have data that is not here yet, and asks without giving it. Told to forget what it
        // has from there on, it does.
        let from = NotifyInvalInodeOut { ino: call.id, off: seek.offset as i64, len: 0 };
        let _ = call.kernel.notify(NOTIFY_INVAL_INODE, from.as_bytes());
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
}
