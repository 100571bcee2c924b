//! Single inodes: their flags, as chattr sets them, and what identifies them.

use larder_ioctl::abi::FsXattr;
use larder_ioctl::channel::NodeId;
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::call::Ioctl;
use crate::protocol::Notice;
use crate::protocol::abi::ShownId;
use crate::server::call::{Outcome, failed};
use crate::server::channel::Grant;

/// `FS_XFLAG_*`, each with the flag of `FS_IOC_GETFLAGS` that means the same.
const XFLAGS: [(u32, u32); 5] =
    [(0x8, 0x10), (0x10, 0x20), (0x20, 0x8), (0x40, 0x80), (0x80, 0x40)];

pub(super) fn get_flags(ioctl: &mut Ioctl<'_>) -> Outcome {
    let flags = ioctl.node()?.inode.metadata().ioctl_flags();
    ioctl.output(&u64::from(flags))
}

pub(super) fn set_flags(ioctl: &mut Ioctl<'_>) -> Outcome {
    let flags = ioctl.input()?;
    change_flags(ioctl, flags)
}

fn change_flags(ioctl: &Ioctl<'_>, flags: u32) -> Outcome {
    let node = ioctl.node()?;
    if ioctl.server.options.writeback_cache && node.is_open_for_writing() {
        // Some flags change only in empty files, and data may be in the kernel's cache alone.
        let _ = ioctl.call.kernel.now(&Notice::content(ioctl.call.id, 0, 0));
    }
    node.inode.set_ioctl_flags(flags).map_err(failed)?;
    ioctl.call.kernel.now_or_soon(Notice::attributes(ioctl.call.id));
    Ok(())
}

pub(super) fn get_fsxattr(ioctl: &mut Ioctl<'_>) -> Outcome {
    let flags = ioctl.node()?.inode.metadata().ioctl_flags();
    let set = XFLAGS.iter().filter(|(_, flag)| flags & flag != 0);
    let xflags = set.fold(0, |xflags, (xflag, _)| xflags | xflag);
    ioctl.output(&FsXattr { xflags, ..FsXattr::new_zeroed() })
}

pub(super) fn set_fsxattr(ioctl: &mut Ioctl<'_>) -> Outcome {
    let FsXattr { xflags, extsize, projid, cowextsize, .. } = ioctl.input()?;
    let known = XFLAGS.iter().fold(0, |known, (xflag, _)| known | xflag);
    if xflags & !known != 0 || (extsize, projid, cowextsize) != (0, 0, 0) {
        return Err(Errno::OPNOTSUPP);
    }
    let before = ioctl.node()?.inode.metadata().ioctl_flags();
    let flags =
        XFLAGS.iter().fold(
            before,
            |flags, (xflag, flag)| {
                if xflags & xflag != 0 { flags | flag } else { flags & !flag }
            },
        );
    change_flags(ioctl, flags)
}

pub(super) fn get_version(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.output(&ioctl.node()?.inode.metadata().generation)
}

/// A token for the inode. It says whether the caller can write here.
pub(super) fn token(ioctl: &mut Ioctl<'_>) -> Outcome {
    let node = ioctl.node()?;
    let is_writable = ioctl.check_writable().is_ok();
    let grant = Grant::new(&node.inode, &ioctl.call.caller, is_writable);
    ioctl.output(&ioctl.server.channel.grants.give(grant))
}

/// The control channel, if the server serves the caller there, and which inode this is.
pub(super) fn channel(ioctl: &mut Ioctl<'_>) -> Outcome {
    let inode = &ioctl.node()?.inode;
    let node = NodeId { subvolume: inode.subvolume_id(), inode: inode.number() };
    let caller = &ioctl.call.caller;
    let is_served = caller.user() == ShownId::ROOT || caller.runs_server;
    ioctl.output(&ioctl.server.channel.info(node, is_served)?)
}
