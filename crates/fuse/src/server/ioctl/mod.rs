//! ioctls: those of btrfs that FUSE passes on.
//!
//! # Invariants
//! - Subvolumes are made, deleted and marked by root and by the user who runs the server only: the kernel
//!   checks no permission of a directory before it passes an ioctl on.
//! - The kernel is told of each name that appears or goes here: it did neither itself.

mod info;
mod inode;
mod subvolume;

use rustix::io::Errno;
use rustix::ioctl::Opcode;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::{Call, Outcome, Server, failed};
use crate::btrfs;
use crate::protocol::Reply;
use crate::protocol::abi::{IoctlIn, IoctlOut};

/// An ioctl that is being served: what it was given, and the room for what comes of it.
struct Ioctl<'i, 'r> {
    data: &'i [u8],
    out_bytes: usize,
    reply: &'i mut Reply<'r>,
}

impl Server {
    pub(super) fn ioctl(
        &self,
        call: &Call<'_>,
        ioctl: &IoctlIn,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        reply.put(&IoctlOut::new_zeroed())?;
        let out_bytes = ioctl.out_size as usize;
        let mut ioctl_call = Ioctl { data, out_bytes, reply };
        let io = &mut ioctl_call;
        match Opcode::from(ioctl.cmd) {
            btrfs::GETFLAGS => self.get_flags(call, io),
            btrfs::SETFLAGS => self.set_flags(call, io),
            btrfs::FSGETXATTR => self.get_fsxattr(call, io),
            btrfs::FSSETXATTR => self.set_fsxattr(call, io),
            btrfs::GETVERSION => self.get_version(call, io),
            btrfs::GET_FSLABEL => self.get_label(io),
            btrfs::SET_FSLABEL => self.set_label(call, io),
            btrfs::SYNC => self.filesystem.sync().map_err(failed),
            btrfs::SUBVOL_CREATE => self.create_subvolume(call, io),
            btrfs::SNAPSHOT_BY_ID => self.snapshot(call, io),
            btrfs::SNAP_DESTROY => self.delete_subvolume(call, io),
            btrfs::SUBVOL_GETFLAGS => self.get_subvolume_flags(call, io),
            btrfs::SUBVOL_SETFLAGS => self.set_subvolume_flags(call, io),
            btrfs::DEFAULT_SUBVOL => self.set_default_subvolume(call, io),
            btrfs::INO_LOOKUP => self.look_up_inode(call, io),
            btrfs::FS_INFO => self.filesystem_info(io),
            btrfs::DEV_INFO => self.device_info(io),
            btrfs::GET_FEATURES => self.features(io),
            _ => Err(Errno::NOTTY),
        }
    }

    /// Refuses what is for root and for the user who runs the server.
    fn check_privileged(&self, call: &Call<'_>) -> Outcome {
        if call.uid == 0 || call.uid == self.owner { Ok(()) } else { Err(Errno::PERM) }
    }
}

impl Ioctl<'_, '_> {
    /// What it was given.
    fn input<T: FromBytes>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.data).map(|(input, _)| input).map_err(|_| Errno::INVAL)
    }

    /// Returns a structure, or the beginning of it that the caller has room for.
    fn output(&mut self, output: &(impl IntoBytes + Immutable)) -> Outcome {
        let bytes = output.as_bytes();
        self.reply.put_bytes(&bytes[..bytes.len().min(self.out_bytes)])
    }
}

/// The text in `bytes`, up to its zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// `text` at the beginning of zeros, cut so that there is a zero at its end.
fn padded<const LEN: usize>(text: &[u8]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let len = text.len().min(LEN - 1);
    bytes[..len].copy_from_slice(&text[..len]);
    bytes
}
