//! Subvolumes made, deleted and marked.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder::{Inode, SnapshotKind, Subvolume, Timestamp, Uuid};
use larder_ioctl::abi::{
    ReceivedArgs, SUBVOL_RDONLY, SUBVOL_SPEC_BY_ID, Timespec, VolArgs, VolArgsV2,
};
use rustix::io::Errno;

use super::{Ioctl, Outcome, Server, failed, text};
use crate::protocol::Notice;
use crate::server::Call;
use crate::server::access::{EXECUTE, WRITE};
use crate::server::nodes::number_of;

/// Type and permissions of a subvolume's root, before the umask, which a server is not told.
const ROOT_MODE: u32 = 0o040_755;

impl Server {
    pub(super) fn create_subvolume(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let args: VolArgs = io.input()?;
        self.create_named(call, name(&args.name)?)
    }

    pub(super) fn create_subvolume_v2(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let args: VolArgsV2 = io.input()?;
        // There are no quotas to inherit.
        if args.flags != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        self.create_named(call, name(&args.name)?)
    }

    fn create_named(&self, call: &Call<'_>, name: &OsStr) -> Outcome {
        let directory = self.node(call)?.directory()?;
        self.check_access(call, &directory, WRITE | EXECUTE)?;
        let root = call.new_inode(ROOT_MODE, 0, 0);
        directory.create_child_subvolume(name, &root).map_err(failed)?;
        call.tell_of_name(call.id, name);
        Ok(())
    }

    /// A snapshot, of which the descriptor is the id of the subvolume.
    pub(super) fn snapshot(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let args: VolArgsV2 = io.input()?;
        let kind = match args.flags {
            0 => SnapshotKind::Writable,
            SUBVOL_RDONLY => SnapshotKind::ReadOnly,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let name = name(&args.name)?;
        let directory = self.node(call)?.directory()?;
        let source = self.filesystem.subvolume_by_id(args.fd as u64).map_err(failed)?;
        let root = source.root().map_err(failed)?;
        self.check_owner(call, &root)?;
        self.check_access(call, &directory, WRITE | EXECUTE)?;
        directory.snapshot_child(name, &source, kind).map_err(failed)?;
        call.tell_of_name(call.id, name);
        Ok(())
    }

    pub(super) fn delete_subvolume(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let args: VolArgs = io.input()?;
        self.delete_named(call, &self.node(call)?.inode, call.id, name(&args.name)?)
    }

    /// As the other, or by the id of the subvolume, wherever in the file system it is named.
    pub(super) fn delete_subvolume_v2(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let args: VolArgsV2 = io.input()?;
        match args.flags {
            0 => self.delete_named(call, &self.node(call)?.inode, call.id, name(&args.name)?),
            SUBVOL_SPEC_BY_ID => {
                let (id, _) = args.name.split_first_chunk().ok_or(Errno::INVAL)?;
                let id = u64::from_ne_bytes(*id);
                let info = self.filesystem.subvolume_by_id(id).and_then(|found| found.info());
                let name = info.map_err(failed)?.name.ok_or(Errno::NOENT)?;
                let parent = self.filesystem.subvolume_by_id(name.parent).map_err(failed)?;
                let directory = parent.inode(name.directory).map_err(failed)?;
                let node = number_of(name.parent, name.directory);
                self.delete_named(call, &directory, node, OsStr::from_bytes(&name.name))
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Deletes a subvolume in `directory`, which the kernel knows as `node`.
    fn delete_named(&self, call: &Call<'_>, directory: &Inode, node: u64, name: &OsStr) -> Outcome {
        let directory = directory.clone().into_directory().map_err(failed)?;
        let child = directory.child(name).map_err(failed)?;
        if !self.is_privileged(call) {
            if !self.options.user_subvol_rm_allowed {
                return Err(Errno::PERM);
            }
            self.check_access(call, &child, WRITE | EXECUTE)?;
        }
        self.check_may_remove(call, &directory, &child)?;
        let id = child.subvolume_id();
        drop(child);
        directory.delete_child_subvolume(name).map_err(failed)?;
        call.tell_of_name(node, name);
        self.pruning.note_deleted(id);
        Ok(())
    }

    pub(super) fn get_subvolume_flags(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let is_read_only = self.subvolume_of(call)?.info().map_err(failed)?.is_read_only;
        io.output(&if is_read_only { SUBVOL_RDONLY } else { 0 })
    }

    pub(super) fn set_subvolume_flags(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let subvolume = self.subvolume_of(call)?;
        self.check_owner(call, &self.node(call)?.inode)?;
        let flags: u64 = io.input()?;
        if flags & !SUBVOL_RDONLY != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        subvolume.set_read_only(flags != 0).map_err(failed)
    }

    pub(super) fn set_received(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let args: ReceivedArgs = io.input()?;
        let subvolume = self.subvolume_of(call)?;
        self.check_owner(call, &self.node(call)?.inode)?;
        let sent = Timestamp { seconds: args.stime.sec as i64, nanoseconds: args.stime.nsec };
        let uuid = Uuid::from_bytes(args.uuid);
        let (rtransid, received) =
            subvolume.set_received(uuid, args.stransid, sent).map_err(failed)?;
        io.output(&ReceivedArgs { rtransid, rtime: timespec(received), ..args })
    }

    pub(super) fn set_default_subvolume(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        self.check_privileged(call)?;
        let id = match io.input()? {
            // As for the kernel, 0 is the top level.
            0 => 5,
            id => id,
        };
        self.filesystem.subvolume_by_id(id).map_err(failed)?;
        self.filesystem.set_default_subvolume(id).map_err(failed)
    }

    /// The subvolume of whose root the ioctl was called.
    fn subvolume_of(&self, call: &Call<'_>) -> Result<Subvolume, Errno> {
        self.node(call)?.inode.clone().into_subvolume().map_err(failed)
    }
}

/// A time as ioctls have it.
pub(super) fn timespec(time: Timestamp) -> Timespec {
    Timespec { sec: time.seconds as u64, nsec: time.nanoseconds, padding: 0 }
}

/// The name in a request: one, not a path.
fn name(bytes: &[u8]) -> Result<&OsStr, Errno> {
    match text(bytes) {
        b"" => Err(Errno::INVAL),
        name => Ok(OsStr::from_bytes(name)),
    }
}

impl Call<'_> {
    /// Something else is called `name` now in the directory that the kernel knows as `node`, or nothing.
    fn tell_of_name(&self, node: u64, name: &OsStr) {
        for notice in notices_of_name(node, name) {
            self.kernel.now_or_soon(notice);
        }
    }
}

/// The kernel forgets what it knows about `name` in the directory that it knows as `node`, and what it knows about
/// the directory. It waits for the lock of the directory: [`Notice::all_names`] does not, and would unmount what
/// is mounted below other names.
pub(in crate::server) fn notices_of_name(node: u64, name: &OsStr) -> [Notice; 2] {
    [Notice::name(node, name), Notice::content(node, 0, 0)]
}
