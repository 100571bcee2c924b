//! Flags of inodes, as chattr and others set them.

use larder_ioctl::abi::FsXattr;
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::{Ioctl, Outcome, Server, failed};
use crate::protocol::Notice;
use crate::server::Call;

/// `FS_XFLAG_*` and the flags of `FS_IOC_GETFLAGS` that say the same.
const XFLAGS: [(u32, u32); 5] =
    [(0x8, 0x10), (0x10, 0x20), (0x20, 0x8), (0x40, 0x80), (0x80, 0x40)];

impl Server {
    pub(super) fn get_flags(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let flags = self.node(call)?.inode.metadata().ioctl_flags();
        io.output(&u64::from(flags))
    }

    pub(super) fn set_flags(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let flags: u32 = io.input()?;
        self.node(call)?.inode.set_ioctl_flags(flags).map_err(failed)?;
        call.kernel.now_or_soon(Notice::attributes(call.id));
        Ok(())
    }

    pub(super) fn get_fsxattr(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let flags = self.node(call)?.inode.metadata().ioctl_flags();
        let set = XFLAGS.iter().filter(|(_, flag)| flags & flag != 0);
        let xflags = set.fold(0, |xflags, (xflag, _)| xflags | xflag);
        io.output(&FsXattr { xflags, ..FsXattr::new_zeroed() })
    }

    pub(super) fn set_fsxattr(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let FsXattr { xflags, extsize, projid, cowextsize, .. } = io.input()?;
        let known = XFLAGS.iter().fold(0, |known, (xflag, _)| known | xflag);
        if xflags & !known != 0 || (extsize, projid, cowextsize) != (0, 0, 0) {
            return Err(Errno::OPNOTSUPP);
        }
        let node = self.node(call)?;
        let before = node.inode.metadata().ioctl_flags();
        let flags = XFLAGS.iter().fold(before, |flags, (xflag, flag)| {
            if xflags & xflag != 0 { flags | flag } else { flags & !flag }
        });
        node.inode.set_ioctl_flags(flags).map_err(failed)?;
        call.kernel.now_or_soon(Notice::attributes(call.id));
        Ok(())
    }

    pub(super) fn get_version(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        io.output(&self.node(call)?.inode.metadata().generation)
    }
}
