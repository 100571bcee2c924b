//! Subvolumes made, deleted and marked.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder::{SnapshotKind, Subvolume};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::{Ioctl, Outcome, Server, failed, padded, text};
use crate::btrfs::{InoLookupArgs, SUBVOL_RDONLY, SnapshotArgs, VolArgs};
use crate::protocol::abi::{
    NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NotifyInvalEntryOut, NotifyInvalInodeOut,
};
use crate::server::Call;

/// Type and permissions of a subvolume's root, before the umask, which a server is not told.
const ROOT_MODE: u32 = 0o040_755;

impl Server {
    pub(super) fn create_subvolume(&self, call: &Call<'_>, io: &mut Ioctl<'_, '_>) -> Outcome {
        self.check_privileged(call)?;
        let args: VolArgs = io.input()?;
        let name = name(&args.name)?;
        let directory = self.node(call)?.directory()?;
        let root = call.new_inode(ROOT_MODE, 0, 0);
        directory.create_child_subvolume(name, &root).map_err(failed)?;
        tell_of_name(call, name);
        Ok(())
    }

    pub(super) fn snapshot(&self, call: &Call<'_>, io: &mut Ioctl<'_, '_>) -> Outcome {
        self.check_privileged(call)?;
        let args: SnapshotArgs = io.input()?;
        let kind = match args.flags {
            0 => SnapshotKind::Writable,
            SUBVOL_RDONLY => SnapshotKind::ReadOnly,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let name = name(&args.name)?;
        let directory = self.node(call)?.directory()?;
        let source = self.filesystem.subvolume_by_id(args.source).map_err(failed)?;
        directory.snapshot_child(name, &source, kind).map_err(failed)?;
        tell_of_name(call, name);
        Ok(())
    }

    pub(super) fn delete_subvolume(&self, call: &Call<'_>, io: &mut Ioctl<'_, '_>) -> Outcome {
        self.check_privileged(call)?;
        let args: VolArgs = io.input()?;
        let name = name(&args.name)?;
        self.node(call)?.directory()?.delete_child_subvolume(name).map_err(failed)?;
        tell_of_name(call, name);
        Ok(())
    }

    pub(super) fn get_subvolume_flags(&self, call: &Call<'_>, io: &mut Ioctl<'_, '_>) -> Outcome {
        let is_read_only = self.subvolume_of(call)?.info().map_err(failed)?.is_read_only;
        io.output(&if is_read_only { SUBVOL_RDONLY } else { 0 })
    }

    pub(super) fn set_subvolume_flags(&self, call: &Call<'_>, io: &mut Ioctl<'_, '_>) -> Outcome {
        self.check_privileged(call)?;
        let flags: u64 = io.input()?;
        if flags & !SUBVOL_RDONLY != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        self.subvolume_of(call)?.set_read_only(flags != 0).map_err(failed)
    }

    pub(super) fn set_default_subvolume(&self, call: &Call<'_>, io: &mut Ioctl<'_, '_>) -> Outcome {
        self.check_privileged(call)?;
        self.filesystem.set_default_subvolume(io.input()?).map_err(failed)
    }

    /// The path of an inode in a subvolume, with a slash at its end; of tree 0 that of the inode that the
    /// ioctl was called of.
    pub(super) fn look_up_inode(&self, call: &Call<'_>, io: &mut Ioctl<'_, '_>) -> Outcome {
        let asked: InoLookupArgs = io.input()?;
        let own = self.node(call)?.inode.subvolume_id();
        let treeid = if asked.treeid == 0 { own } else { asked.treeid };
        let subvolume = self.filesystem.subvolume_by_id(treeid).map_err(failed)?;
        let root = subvolume.root().map_err(failed)?.number();
        // Anybody may ask which subvolume this is.
        if asked.objectid == root {
            return io.output(&InoLookupArgs { treeid, name: padded(b""), ..asked });
        }
        self.check_privileged(call)?;
        let inode = subvolume.inode(asked.objectid).map_err(failed)?;
        let paths = inode.paths().map_err(failed)?;
        let path = paths.first().ok_or(Errno::NOENT)?.as_os_str().as_bytes();
        if path.len() + 1 >= asked.name.len() {
            return Err(Errno::NAMETOOLONG);
        }
        io.output(&InoLookupArgs { treeid, name: padded(&[path, b"/"].concat()), ..asked })
    }

    /// The subvolume of whose root the ioctl was called.
    fn subvolume_of(&self, call: &Call<'_>) -> Result<Subvolume, Errno> {
        self.node(call)?.inode.clone().into_subvolume().map_err(failed)
    }
}

/// The name in a request: one, not a path.
fn name(bytes: &[u8]) -> Result<&OsStr, Errno> {
    match text(bytes) {
        b"" => Err(Errno::INVAL),
        name => Ok(OsStr::from_bytes(name)),
    }
}

/// Has the kernel forget what it knows about `name` in the directory that the call is about, and what it
/// knows about the directory.
fn tell_of_name(call: &Call<'_>, name: &OsStr) {
    let name = name.as_bytes();
    let entry = NotifyInvalEntryOut { parent: call.id, namelen: name.len() as u32, flags: 0 };
    // They fail where the kernel knows nothing that it could forget.
    let _ = call.kernel.notify(NOTIFY_INVAL_ENTRY, &[entry.as_bytes(), name, b"\0"].concat());
    let inode = NotifyInvalInodeOut { ino: call.id, off: 0, len: 0 };
    let _ = call.kernel.notify(NOTIFY_INVAL_INODE, inode.as_bytes());
}
