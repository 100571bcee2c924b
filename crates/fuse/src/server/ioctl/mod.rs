//! ioctls of btrfs: those that FUSE passes on, and others in an envelope.
//!
//! # Invariants
//! - The kernel checks no permission before it passes an ioctl on: each handler does what btrfs's own would, and
//!   the user who runs the server may what root may.
//! - The kernel is told of each name that appears or goes here: it did neither itself.

mod envelope;
mod files;
mod health;
mod info;
mod inode;
mod search;
mod subvolume;
mod subvolume_info;

use larder_ioctl::abi;
use larder_ioctl::channel::NodeId;
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::{Call, Outcome, Server, failed};
use crate::protocol::Reply;
use crate::protocol::abi::{IoctlIn, IoctlOut};

pub(super) use subvolume::notices_of_name;

/// An ioctl that is being served: what it was given, and what comes of it.
struct Ioctl<'i> {
    data: &'i [u8],
    out_bytes: usize,
    output: Vec<u8>,
    /// An error that comes with the output, not in its place.
    error: Option<Errno>,
}

impl Server {
    pub(super) fn ioctl(
        &self,
        call: &Call<'_>,
        ioctl: &IoctlIn,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mut io = Ioctl::new(data, ioctl.out_size as usize);
        self.serve_ioctl(Opcode::from(ioctl.cmd), call, &mut io)?;
        let result = io.error.map_or(0, |error| -error.raw_os_error());
        reply.put(&IoctlOut { result, ..IoctlOut::new_zeroed() })?;
        reply.put_bytes(&io.output)
    }

    fn serve_ioctl(&self, request: Opcode, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        match request {
            abi::GETFLAGS => self.get_flags(call, io),
            abi::SETFLAGS => self.set_flags(call, io),
            abi::FSGETXATTR => self.get_fsxattr(call, io),
            abi::FSSETXATTR => self.set_fsxattr(call, io),
            abi::GETVERSION => self.get_version(call, io),
            abi::GET_FSLABEL => self.get_label(io),
            abi::SET_FSLABEL => self.set_label(call, io),
            abi::SYNC => self.filesystem.sync().map_err(failed),
            abi::START_SYNC => self.start_sync(io),
            // What was begun was ended at once.
            abi::WAIT_SYNC => Ok(()),
            abi::SUBVOL_CREATE => self.create_subvolume(call, io),
            abi::SUBVOL_CREATE_V2 => self.create_subvolume_v2(call, io),
            abi::SNAP_DESTROY => self.delete_subvolume(call, io),
            abi::SNAP_DESTROY_V2 => self.delete_subvolume_v2(call, io),
            abi::SUBVOL_GETFLAGS => self.get_subvolume_flags(call, io),
            abi::SUBVOL_SETFLAGS => self.set_subvolume_flags(call, io),
            abi::SET_RECEIVED_SUBVOL => self.set_received(call, io),
            abi::DEFAULT_SUBVOL => self.set_default_subvolume(call, io),
            abi::GET_SUBVOL_INFO => self.subvolume_info(call, io),
            abi::GET_SUBVOL_ROOTREF => self.subvolume_references(call, io),
            abi::INO_LOOKUP => self.look_up_inode(call, io),
            abi::INO_LOOKUP_USER => self.look_up_subvolume(call, io),
            abi::TREE_SEARCH => self.search_tree(call, io),
            abi::FS_INFO => self.filesystem_info(io),
            abi::DEV_INFO => self.device_info(io),
            abi::GET_FEATURES => self.features(io),
            abi::GET_DEV_STATS => self.device_errors(call, io),
            abi::HEALTH => self.put_health(io),
            abi::IN_ENVELOPE => self.serve_envelope(call, io),
            abi::CHANNEL => self.channel(call, io),
            _ => Err(Errno::NOTTY),
        }
    }

    /// Where streams are sent and received, and which inode this is.
    fn channel(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let inode = &self.node(call)?.inode;
        let node = NodeId { subvolume: inode.subvolume_id(), inode: inode.number() };
        io.output(&self.channel_info(node)?)
    }
}

impl<'i> Ioctl<'i> {
    fn new(data: &'i [u8], out_bytes: usize) -> Self {
        Self { data, out_bytes, output: Vec::new(), error: None }
    }

    /// The structure that it was given.
    fn input<T: FromBytes>(&self) -> Result<T, Errno> {
        self.input_and_more().map(|(input, _)| input)
    }

    /// The structure that it was given, and what follows it.
    fn input_and_more<T: FromBytes>(&self) -> Result<(T, &'i [u8]), Errno> {
        T::read_from_prefix(self.data).map_err(|_| Errno::INVAL)
    }

    /// Returns a structure, or the beginning of it that the caller has room for, behind what was returned
    /// before.
    #[allow(clippy::unnecessary_wraps, reason = "handlers end with it")]
    fn output(&mut self, output: &(impl IntoBytes + Immutable + ?Sized)) -> Outcome {
        let bytes = output.as_bytes();
        let room = self.out_bytes - self.output.len();
        self.output.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
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
