//! Names: found, made, moved and taken away.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use larder::{Directory, ErrorKind, FileType, Inode, NewInode, RenameMode};
use rustix::io::Errno;

use super::attributes::{VALID_SECONDS, device_of};
use super::{Call, Outcome, Server, failed};
use crate::protocol::Reply;
use crate::protocol::abi::{CreateIn, EntryOut, MkdirIn, MknodIn};

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFMT: u32 = 0o170_000;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const RENAME_NOREPLACE_WHITEOUT: u32 = RENAME_NOREPLACE | RENAME_WHITEOUT;
/// Linux's own bound on names, which FUSE leaves to the server.
const NAME_MAX: usize = 255;

impl Server {
    pub(super) fn lookup(&self, call: &Call<'_>, name: &OsStr, reply: &mut Reply<'_>) -> Outcome {
        if name == "." || name == ".." {
            return self.look_up_by_handle(call, name, reply);
        }
        let directory = self.node(call)?.directory()?;
        if self.hidden.has(&directory, name) {
            return Err(Errno::BUSY);
        }
        match directory.child(name) {
            Ok(inode) => {
                if inode.file_type() != FileType::Directory {
                    self.walkers.ask(call.pid);
                }
                self.put_entry(inode, reply)
            }
            Err(error) if error.kind() == ErrorKind::NotFound && name.len() <= NAME_MAX => {
                reply.put(&EntryOut::negative(VALID_SECONDS))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Finds an inode of which a program has a handle, or the directory above it. The kernel may have forgotten
    /// both; it asks by these names in no other case.
    fn look_up_by_handle(&self, call: &Call<'_>, name: &OsStr, reply: &mut Reply<'_>) -> Outcome {
        let inode = self.nodes.known_or_forgotten(call.id, &self.filesystem)?;
        if name == "." {
            return self.put_entry(inode, reply);
        }
        // The way up ends at what is mounted; what is not below that has none.
        if self.nodes.is_above_root(&inode) {
            return Err(Errno::STALE);
        }
        let parent = inode.into_directory().and_then(|directory| directory.parent());
        self.put_entry(parent.map_err(failed)?.into_inode(), reply)
    }

    pub(super) fn readlink(&self, call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
        let node = self.node(call)?;
        let target = node.inode.link_target().map_err(failed)?;
        self.accessed(&node.inode);
        reply.put_bytes(target.as_os_str().as_bytes())
    }

    pub(super) fn symlink(
        &self,
        call: &Call<'_>,
        name: &OsStr,
        target: &OsStr,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let directory = self.node(call)?.directory()?;
        let made = directory.symlink_child(name, target.as_ref(), &call.new_inode(0, 0, 0));
        self.put_entry(made.map_err(failed)?, reply)
    }

    pub(super) fn mknod(
        &self,
        call: &Call<'_>,
        name: &OsStr,
        new: &MknodIn,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let made = self.make(call, name, &call.new_inode(new.mode, new.umask, new.rdev))?;
        self.put_entry(made, reply)
    }

    pub(super) fn mkdir(
        &self,
        call: &Call<'_>,
        name: &OsStr,
        new: MkdirIn,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mode = new.mode & !S_IFMT | S_IFDIR;
        let made = self.make(call, name, &call.new_inode(mode, new.umask, 0))?;
        self.put_entry(made, reply)
    }

    pub(super) fn unlink(&self, call: &Call<'_>, name: &OsStr) -> Outcome {
        let directory = self.node(call)?.directory()?;
        self.keep(&directory, name);
        directory.remove_child(name).map_err(failed)
    }

    pub(super) fn rmdir(&self, call: &Call<'_>, name: &OsStr) -> Outcome {
        self.node(call)?.directory()?.remove_child_directory(name).map_err(failed)
    }

    pub(super) fn rename(
        &self,
        call: &Call<'_>,
        name: &OsStr,
        new_directory: u64,
        new_name: &OsStr,
        flags: u32,
    ) -> Outcome {
        let mode = match flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            RENAME_WHITEOUT => RenameMode::Whiteout { uid: call.uid, gid: call.gid },
            RENAME_NOREPLACE_WHITEOUT => {
                RenameMode::NoReplaceWhiteout { uid: call.uid, gid: call.gid }
            }
            _ => return Err(Errno::INVAL),
        };
        let from = self.node(call)?.directory()?;
        let to = self.nodes.get(new_directory)?.directory()?;
        self.keep(&to, new_name);
        from.rename_child(name, &to, new_name, mode).map_err(failed)
    }

    pub(super) fn link(
        &self,
        call: &Call<'_>,
        inode: u64,
        name: &OsStr,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let linked = self.nodes.get(inode)?;
        self.node(call)?.directory()?.link_child(name, &linked.inode).map_err(failed)?;
        self.put_entry(linked.inode.clone(), reply)
    }

    pub(super) fn make(
        &self,
        call: &Call<'_>,
        name: &OsStr,
        new: &NewInode,
    ) -> Result<Inode, Errno> {
        self.node(call)?.directory()?.create_child(name, new).map_err(failed)
    }

    /// Has what is about to lose the name `name` open, so that a program which refers to it can go
    /// on.
    fn keep(&self, directory: &Directory, name: &OsStr) {
        // What cannot be found cannot lose the name either.
        if let Ok(inode) = directory.child(name) {
            self.nodes.keep(inode);
        }
    }

    /// Replies with an inode that is looked up by this.
    fn put_entry(&self, inode: Inode, reply: &mut Reply<'_>) -> Outcome {
        let (id, node) = self.nodes.look_up(inode)?;
        reply.put(&self.entry(id, &node)).inspect_err(|_| self.nodes.forget(id, 1))
    }
}

impl Call<'_> {
    /// A file that is made for the caller.
    pub(super) fn new_file(&self, new: &CreateIn) -> NewInode {
        self.new_inode(new.mode & !S_IFMT | S_IFREG, new.umask, 0)
    }

    /// What is made for the caller. A default ACL of the directory takes the place of the umask.
    pub(super) fn new_inode(&self, mode: u32, umask: u32, device: u32) -> NewInode {
        let is_device =
            matches!(FileType::from_mode(mode), Some(FileType::BlockDevice | FileType::CharDevice));
        let device = if is_device { device_of(device) } else { (0, 0) };
        NewInode { mode, uid: self.uid, gid: self.gid, umask, device }
    }
}
