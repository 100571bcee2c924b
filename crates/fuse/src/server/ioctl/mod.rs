//! ioctls of btrfs: those that FUSE passes on, and others in an envelope.
//!
//! # Invariants
//! - The kernel checks no permission before it passes an ioctl on: each handler checks what btrfs
//!   would, capability by capability, and lets the user who runs the server do what root may.
//! - Nor does the kernel ask whether the mount is read-only: each handler that changes something
//!   asks ([`Ioctl::check_writable`]).
//! - An inode that an ioctl names by a number alone needs the capability that reaches all inodes.
//! - The server tells the kernel of each name that it adds or removes here.

mod balance;
mod call;
mod caller;
mod claim;
mod devices;
mod envelope;
mod files;
mod health;
mod info;
mod inode;
mod replace;
mod scrub;
mod search;
mod subvolume;
mod subvolume_info;

use larder_ioctl::abi;
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use zerocopy::FromZeros;

use self::call::Ioctl;
use super::call::{Call, Outcome};
use super::state::Server;
use crate::protocol::Reply;
use crate::protocol::abi::{IoctlIn, IoctlOut};

pub(super) fn serve(
    server: &Server,
    call: &Call<'_>,
    request: &IoctlIn,
    data: &[u8],
    reply: &mut Reply<'_>,
) -> Outcome {
    let mut ioctl = Ioctl::new(server, call, data, request.out_size as usize);
    dispatch(Opcode::from(request.cmd), &mut ioctl)?;
    let result = ioctl.error.map_or(ioctl.answer, |error| -error.raw_os_error());
    reply.put(&IoctlOut { result, ..IoctlOut::new_zeroed() })?;
    reply.put_bytes(&ioctl.output)
}

fn dispatch(request: Opcode, ioctl: &mut Ioctl<'_>) -> Outcome {
    match request {
        abi::GETFLAGS => inode::get_flags(ioctl),
        abi::SETFLAGS => inode::set_flags(ioctl),
        abi::FSGETXATTR => inode::get_fsxattr(ioctl),
        abi::FSSETXATTR => inode::set_fsxattr(ioctl),
        abi::GETVERSION => inode::get_version(ioctl),
        abi::CHANNEL => inode::channel(ioctl),
        abi::TOKEN => inode::token(ioctl),
        abi::INO_LOOKUP => files::look_up_inode(ioctl),
        abi::GET_FSLABEL => info::get_label(ioctl),
        abi::SET_FSLABEL => info::set_label(ioctl),
        abi::FS_INFO => info::filesystem(ioctl),
        abi::DEV_INFO => info::device(ioctl),
        abi::GET_FEATURES => info::features(ioctl),
        abi::SYNC => info::sync(ioctl),
        abi::START_SYNC => info::start_sync(ioctl),
        // START_SYNC has finished what it began.
        abi::WAIT_SYNC => Ok(()),
        abi::GET_DEV_STATS => health::device_errors(ioctl),
        abi::RESIZE => devices::resize(ioctl),
        abi::ADD_DEV => devices::add(ioctl),
        abi::RM_DEV_V2 => devices::remove(ioctl),
        abi::BALANCE_V2 => balance::balance(ioctl),
        abi::BALANCE_PROGRESS => balance::progress(ioctl),
        abi::COMPLETE => devices::complete(ioctl),
        abi::DEV_REPLACE => replace::replace(ioctl),
        abi::SCRUB => scrub::scrub(ioctl),
        abi::SCRUB_CANCEL => scrub::cancel(ioctl),
        abi::SCRUB_PROGRESS => scrub::progress(ioctl),
        abi::SCRUB_LIMIT => scrub::limit(ioctl),
        abi::HEALTH => health::health(ioctl),
        abi::METRICS => health::metrics(ioctl),
        abi::SUBVOL_CREATE => subvolume::create(ioctl),
        abi::SUBVOL_CREATE_V2 => subvolume::create_v2(ioctl),
        abi::SNAP_DESTROY => subvolume::delete(ioctl),
        abi::SNAP_DESTROY_V2 => subvolume::delete_v2(ioctl),
        abi::SUBVOL_GETFLAGS => subvolume::get_flags(ioctl),
        abi::SUBVOL_SETFLAGS => subvolume::set_flags(ioctl),
        abi::SET_RECEIVED_SUBVOL => subvolume::set_received(ioctl),
        abi::DEFAULT_SUBVOL => subvolume::set_default(ioctl),
        abi::GET_SUBVOL_INFO => subvolume_info::info(ioctl),
        abi::GET_SUBVOL_ROOTREF => subvolume_info::references(ioctl),
        abi::INO_LOOKUP_USER => subvolume_info::look_up(ioctl),
        abi::TREE_SEARCH => search::search_tree(ioctl),
        abi::IN_ENVELOPE => envelope::serve(ioctl),
        _ => Err(Errno::NOTTY),
    }
}
