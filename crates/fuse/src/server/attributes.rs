//! Getting and setting attributes.

use larder::{FileType, Metadata, SetAttributes, Subvolume, Timestamp};
use rustix::io::Errno;
use zerocopy::FromZeros;

use super::call::{Call, Outcome, failed};
use super::data::{may_miss_data, note_resized};
use super::nodes::{Access, FuseNode, Opening, generation_in};
use super::numbers::number_of;
use super::state::Server;
use crate::protocol::Reply;
use crate::protocol::abi::{
    Attr, AttrOut, EntryOut, SetAttrValid, SetattrIn, Statx, StatxOut, SxTime,
};

/// Bytes that `st_blocks` counts in.
const BLOCK_BYTES: u64 = 512;
/// The bits of a mode that are not its type.
pub(super) const PERMISSIONS: u32 = 0o7777;
const SET_GID: u32 = 0o2000;
/// utimensat(2) to the present, with writeback_cache.
const NOW_BY_KERNEL: SetAttrValid = SetAttrValid::ATIME
    .union(SetAttrValid::ATIME_NOW)
    .union(SetAttrValid::MTIME)
    .union(SetAttrValid::CTIME);
/// The fields of statx that the server fills: those of stat, and the time of birth.
const STATX_BASIC_STATS_AND_BTIME: u32 = 0xFFF;

pub(super) fn get(server: &Server, call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let node = server.nodes.peek(call.id)?;
    put(server, &node, reply)
}

pub(super) fn statx(server: &Server, call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let node = server.nodes.peek(call.id)?;
    let Seen { metadata, taken_bytes, valid_seconds } = Seen::of(server, &node);
    let attr = attributes(server, node.number(), &metadata, taken_bytes);
    let time =
        |time: Timestamp| SxTime { tv_sec: time.seconds, tv_nsec: nanoseconds(time), reserved: 0 };
    let (rdev_major, rdev_minor) = metadata.device;
    let stat = Statx {
        mask: STATX_BASIC_STATS_AND_BTIME,
        blksize: attr.blksize,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.mode as u16,
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(metadata.atime),
        btime: time(metadata.otime),
        ctime: time(metadata.ctime),
        mtime: time(metadata.mtime),
        rdev_major,
        rdev_minor,
        ..Statx::new_zeroed()
    };
    reply.put(&StatxOut { attr_valid: valid_seconds, stat, ..StatxOut::new_zeroed() })
}

pub(super) fn set(
    server: &Server,
    call: &Call<'_>,
    new: &SetattrIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let node = server.node(call)?;
    if node.inode.is_empty_subvolume() {
        return set_of_stand_in(server, &node, new, reply);
    }
    let given = SetAttrValid::from_bits_truncate(new.valid);
    let mut valid = given - SetAttrValid::FH;
    let (uid, gid) = next_owner(server, &node, new, valid)?;
    let names_nothing =
        valid.is_empty() || server.options.writeback_cache && valid == SetAttrValid::CTIME;
    // The kernel asks for this before it changes content through a descriptor, so that the file
    // loses setuid, setgid and capabilities. It also passes on a chown(2) that names neither owner
    // nor group. That is for the owner alone, and it changes the inode all the same.
    if names_nothing {
        if node.inode.file_type() != FileType::Directory {
            if call.caller.loses_set_id_bits(&node.inode) && !node.is_open_for_writing() {
                call.caller.check_owner(&node.inode)?;
            }
            call.caller.drop_privileges(&node.inode)?;
        }
        node.inode.set_attributes(&SetAttributes::default()).map_err(failed)?;
    }
    if let Some((of_access, of_content)) = touches(valid) {
        node.inode.touch(of_access, of_content).map_err(failed)?;
        return put(server, &node, reply);
    }
    if server.options.writeback_cache && sends_times(given, new.fh) {
        set_times_of_writes(&node, new)?;
        return put(server, &node, reply);
    }
    if valid.contains(SetAttrValid::SIZE) {
        resize(server, call, &node, new)?;
    }
    let is_resized_open = given.contains(SetAttrValid::SIZE | SetAttrValid::FH);
    if server.options.writeback_cache && is_resized_open {
        // The file may have become protected since it was opened.
        set_times_of_writes(&node, new)?;
        valid -= SetAttrValid::MTIME | SetAttrValid::CTIME;
    }
    let changes = SetAttributes { uid, gid, ..changes(new, valid) };
    if changes != SetAttributes::default() {
        // The group that the file has now counts.
        let drops_setgid = valid.intersects(SetAttrValid::UID | SetAttrValid::GID)
            && !valid.contains(SetAttrValid::MODE)
            && node.inode.file_type() != FileType::Directory
            && node.inode.metadata().mode & SET_GID != 0
            && !call.caller.keeps_set_gid_of(&node.inode);
        match node.inode.set_attributes(&changes).map_err(failed) {
            // A protected file refuses times that are named, but not the present. With
            // writeback_cache the kernel names the present too.
            Err(Errno::PERM) if server.options.writeback_cache && names_nothing => {}
            Err(Errno::PERM) if server.options.writeback_cache && valid == NOW_BY_KERNEL => {
                node.inode.touch(true, true).map_err(failed)?;
            }
            outcome => outcome?,
        }
        if drops_setgid {
            node.inode.drop_privileges(false).map_err(failed)?;
        }
    }
    put(server, &node, reply)
}

/// Changes the attributes of a directory that stands for a subvolume which is not there. As on the
/// kernel's btrfs they change in memory alone, as long as the kernel knows the directory.
fn set_of_stand_in(
    server: &Server,
    node: &FuseNode,
    new: &SetattrIn,
    reply: &mut Reply<'_>,
) -> Outcome {
    let valid = SetAttrValid::from_bits_truncate(new.valid);
    let mut metadata = node.of_stand_in.lock().clone().unwrap_or_else(|| node.inode.metadata());
    let (uid, gid) = next_owner(server, node, new, valid)?;
    let SetAttributes { permissions, atime, mtime, ctime, .. } = changes(new, valid);
    if let Some(permissions) = permissions {
        metadata.mode = metadata.mode & !PERMISSIONS | permissions;
    }
    metadata.uid = uid.unwrap_or(metadata.uid);
    metadata.gid = gid.unwrap_or(metadata.gid);
    metadata.atime = atime.unwrap_or(metadata.atime);
    metadata.mtime = mtime.unwrap_or(metadata.mtime);
    metadata.ctime = ctime.unwrap_or_else(Timestamp::now);
    *node.of_stand_in.lock() = Some(metadata);
    put(server, node, reply)
}

/// The user and the group to store, if they change.
fn next_owner(
    server: &Server,
    node: &FuseNode,
    new: &SetattrIn,
    valid: SetAttrValid,
) -> Result<(Option<u32>, Option<u32>), Errno> {
    if !valid.intersects(SetAttrValid::UID | SetAttrValid::GID) {
        return Ok((None, None));
    }
    let before = node.inode.metadata();
    let given = |flag, id| valid.contains(flag).then_some(id);
    let user = given(SetAttrValid::UID, new.uid).map(|uid| server.owners.next_user(uid, &before));
    let group = given(SetAttrValid::GID, new.gid).map(|gid| server.owners.next_group(gid, &before));
    Ok((user.transpose()?, group.transpose()?))
}

/// Sets the times that the kernel gave to writes or to a truncation through a descriptor.
fn set_times_of_writes(node: &FuseNode, new: &SetattrIn) -> Outcome {
    let time = |seconds: u64, nanoseconds| Timestamp { seconds: seconds as i64, nanoseconds };
    let (mtime, ctime) = (time(new.mtime, new.mtimensec), time(new.ctime, new.ctimensec));
    node.open_file()?.set_times_of_writes(mtime, ctime).map_err(failed)
}

fn resize(server: &Server, call: &Call<'_>, node: &FuseNode, new: &SetattrIn) -> Outcome {
    let given = SetAttrValid::from_bits_truncate(new.valid);
    let before = node.inode.metadata();
    // Also to the size that the file has: space allocated past its end is freed.
    let set = if given.contains(SetAttrValid::FH) {
        node.open_file()?.set_len(new.size)
    } else {
        node.file()?.set_len(new.size)
    };
    set.map_err(failed)?;
    note_resized(server, node, before.size_bytes, new.size);
    // Cutting a file to the size that it has changes its times if the file is open or is being
    // opened, but not if truncate(2) does it by a path.
    let is_opened = given.contains(SetAttrValid::FH) || new.size == 0;
    if before.size_bytes == new.size && !is_opened {
        let (mtime, ctime) = (Some(before.mtime), Some(before.ctime));
        let unchanged = SetAttributes { mtime, ctime, ..SetAttributes::default() };
        node.inode.set_attributes(&unchanged).map_err(failed)?;
    }
    if given.contains(SetAttrValid::KILL_SUIDGID) {
        call.caller.drop_privileges(&node.inode)?;
    }
    Ok(())
}

fn put(server: &Server, node: &FuseNode, reply: &mut Reply<'_>) -> Outcome {
    let Seen { metadata, taken_bytes, valid_seconds } = Seen::of(server, node);
    let attr = attributes(server, node.number(), &metadata, taken_bytes);
    reply.put(&AttrOut { attr_valid: valid_seconds, attr, ..AttrOut::new_zeroed() })
}

/// The reply for an inode that was looked up.
pub(super) fn entry(server: &Server, id: u64, node: &FuseNode) -> EntryOut {
    let Seen { metadata, taken_bytes, valid_seconds } = Seen::of(server, node);
    EntryOut {
        nodeid: id,
        generation: node.generation(&metadata).into(),
        entry_valid: server.options.valid_seconds(),
        attr_valid: valid_seconds,
        attr: attributes(server, node.number(), &metadata, taken_bytes),
        ..EntryOut::new_zeroed()
    }
}

/// The reply for an inode that a listing shows and that has no dirty data.
pub(super) fn listed_entry(
    server: &Server,
    subvolume: &Subvolume,
    metadata: &Metadata,
) -> EntryOut {
    let number = number_of(metadata.subvolume, metadata.inode);
    EntryOut {
        nodeid: number,
        generation: generation_in(subvolume, metadata).into(),
        entry_valid: server.options.valid_seconds(),
        attr_valid: server.options.valid_seconds(),
        attr: attributes(server, number, metadata, metadata.allocated_bytes),
        ..EntryOut::new_zeroed()
    }
}

fn attributes(server: &Server, number: u64, metadata: &Metadata, taken_bytes: u64) -> Attr {
    let (uid, gid) = server.owners.for_kernel(metadata);
    Attr {
        ino: number,
        size: metadata.size_bytes,
        blocks: taken_bytes / BLOCK_BYTES,
        atime: metadata.atime.seconds as u64,
        mtime: metadata.mtime.seconds as u64,
        ctime: metadata.ctime.seconds as u64,
        atimensec: nanoseconds(metadata.atime),
        mtimensec: nanoseconds(metadata.mtime),
        ctimensec: nanoseconds(metadata.ctime),
        mode: metadata.mode,
        nlink: metadata.nlink,
        uid,
        gid,
        rdev: device_number(metadata.device),
        blksize: server.filesystem.sector_bytes(),
        flags: 0,
    }
}

/// The attributes of a node, as the kernel gets them.
struct Seen {
    metadata: Metadata,
    /// Counted in `st_blocks`: the space that is allocated, and the space that dirty data will
    /// need.
    taken_bytes: u64,
    /// How long the kernel may cache all of this.
    valid_seconds: u64,
}

impl Seen {
    /// Attempts to see a file between two writebacks.
    const ATTEMPTS: u32 = 4;

    /// The attributes of a node. A file that a program may have stored data to, which the server
    /// does not know, has at least one block: programs that copy files take one without blocks for
    /// a single hole, and others look where the data is.
    fn of(server: &Server, node: &FuseNode) -> Self {
        let mut seen = Self::known(server, node);
        if seen.taken_bytes == 0 && may_have_unknown_data(server, node, &seen.metadata) {
            node.blocks.show_one();
            seen.taken_bytes = server.filesystem.sector_bytes().into();
        }
        seen
    }

    /// The attributes at one moment, as far as the server knows. Writeback changes none of them:
    /// dirty data gets as much space as was counted for it. If no attempt sees a single moment, or
    /// the space cannot be told, all dirty data counts, and the kernel asks again soon.
    fn known(server: &Server, node: &FuseNode) -> Self {
        let valid_seconds = server.options.valid_seconds();
        if node.inode.is_empty_subvolume()
            && let Some(metadata) = node.of_stand_in.lock().clone()
        {
            return Self { metadata, taken_bytes: 0, valid_seconds };
        }
        let mut metadata = node.inode.metadata();
        for _ in 0..Self::ATTEMPTS {
            let waits = metadata.dirty_bytes > 0;
            let unplaced_bytes = if waits { node.inode.unplaced_bytes().ok() } else { Some(0) };
            let after = if waits { node.inode.metadata() } else { metadata.clone() };
            if let Some(unplaced_bytes) = unplaced_bytes
                && after == metadata
            {
                let taken_bytes = metadata.allocated_bytes + unplaced_bytes;
                return Self { metadata, taken_bytes, valid_seconds };
            }
            metadata = after;
        }
        let taken_bytes = metadata.allocated_bytes + metadata.dirty_bytes;
        Self { metadata, taken_bytes, valid_seconds: 1 }
    }
}

/// Whether a file may have data that only the kernel knows.
pub(super) fn may_have_unknown_data(server: &Server, node: &FuseNode, metadata: &Metadata) -> bool {
    // The kernel sends the size of a file before a program can store to a mapping of it; cached
    // writes make it longer later.
    let may_have_data = metadata.size_bytes > 0 || server.options.writeback_cache;
    metadata.file_type == FileType::Regular && may_have_data && may_miss_data(server, node)
}

/// Whether the change sets times only, and only to now. If so, whether that of access and that of
/// content.
fn touches(valid: SetAttrValid) -> Option<(bool, bool)> {
    let of_access = SetAttrValid::ATIME | SetAttrValid::ATIME_NOW;
    let of_content = SetAttrValid::MTIME | SetAttrValid::MTIME_NOW;
    let touched = (valid.contains(of_access), valid.contains(of_content));
    let is_all = (valid - of_access - of_content).is_empty()
        && valid.intersects(SetAttrValid::ATIME) == touched.0
        && valid.intersects(SetAttrValid::MTIME) == touched.1;
    (is_all && !valid.is_empty()).then_some(touched)
}

/// Whether the kernel, which sets the times of cached writes, sends them: through a file handle for
/// writing, for a file that may have become protected since. A program that sets only the time of
/// modification through such a handle looks the same.
fn sends_times(given: SetAttrValid, handle: u64) -> bool {
    let is_for_writing = |opening: Opening| opening.access != Access::Read;
    given == SetAttrValid::FH | SetAttrValid::MTIME | SetAttrValid::CTIME
        && Opening::of_handle(handle).is_some_and(is_for_writing)
}

fn changes(new: &SetattrIn, valid: SetAttrValid) -> SetAttributes {
    let given = |flag, value: u32| valid.contains(flag).then_some(value);
    let time = |flag, seconds: u64, nanoseconds| {
        let seconds = seconds as i64;
        valid.contains(flag).then_some(Timestamp { seconds, nanoseconds })
    };
    let now = |flag| valid.contains(flag).then(Timestamp::now);
    let atime = time(SetAttrValid::ATIME, new.atime, new.atimensec);
    let mtime = time(SetAttrValid::MTIME, new.mtime, new.mtimensec);
    SetAttributes {
        permissions: given(SetAttrValid::MODE, new.mode).map(|mode| mode & PERMISSIONS),
        atime: now(SetAttrValid::ATIME_NOW).or(atime),
        mtime: now(SetAttrValid::MTIME_NOW).or(mtime),
        ctime: time(SetAttrValid::CTIME, new.ctime, new.ctimensec),
        ..SetAttributes::default()
    }
}

/// The nanoseconds of a stored time, which may exceed a second.
fn nanoseconds(time: Timestamp) -> u32 {
    time.nanoseconds.min(999_999_999)
}

/// A device number in the protocol's form: eight bits of the minor number, the major number, the
/// rest.
fn device_number((major, minor): (u32, u32)) -> u32 {
    minor & 0xFF | (major & 0xFFF) << 8 | (minor & !0xFF) << 12
}

/// Major and minor number of a device number in the protocol's form.
pub(super) fn device_of(number: u32) -> (u32, u32) {
    (number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xF_FF00)
}

#[cfg(test)]
mod tests {
    use super::{device_number, device_of};

    #[test]
    fn device_numbers_go_there_and_back() {
        for device in [(0, 0), (8, 1), (4095, 0xF_FFFF), (259, 0x1234)] {
            assert_eq!(device_of(device_number(device)), device);
        }
        assert_eq!(device_number((8, 1)), 0x801);
    }
}
