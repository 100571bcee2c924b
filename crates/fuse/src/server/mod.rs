//! What requests mean: one file for each group of operations.
//!
//! # Invariants
//! - All that is known about a file system is asked of the library; here is only what the protocol
//!   needs besides: which inodes the kernel knows.
//! - An operation either answers in full or leaves an error and nothing of its reply.
//! - Whatever a reply counts as a lookup has been entered into the table of nodes, and is taken back if
//!   the reply is not made.

mod access;
mod atime;
mod attributes;
mod channel;
mod data;
mod directory;
mod exchange;
mod further;
#[cfg(test)]
mod hostile;
mod init;
mod interrupt;
mod ioctl;
mod namespace;
mod nodes;
mod open;
mod page_tail;
#[cfg(test)]
mod panics;
mod pruning;
mod statfs;
mod walkers;
mod xattr;

use std::sync::Arc;

use larder::{Filesystem, Health, Subvolume};
use rustix::io::Errno;

use self::channel::{Channel, Hidden};
use self::interrupt::Interrupts;
use self::nodes::{Node, Nodes, Place};
use self::pruning::Pruning;
use self::walkers::Walkers;
use crate::protocol::{Answer, Operation, Reply, Request};
use crate::transport::{Handler, Limits, Tell};

pub use self::atime::AccessTimes;
pub(crate) use self::exchange::Exchange;
pub use self::exchange::{ReadOptions, Settings};
pub use self::further::{FurtherMount, ReadFurther};

/// Serves a subvolume, and those nested in it, as a mounted file system.
#[derive(Debug)]
pub struct Server {
    filesystem: Filesystem,
    nodes: Nodes,
    pruning: Arc<Pruning>,
    channel: Arc<Channel>,
    hidden: Hidden,
    /// The user who runs the server: with root the one who may do all with subvolumes.
    owner: u32,
    options: ServerOptions,
    interrupts: Interrupts,
    walkers: Walkers,
    /// How the file system was when this server took the place of another.
    earlier: Option<Health>,
    has_selinux: bool,
}

/// How a server serves.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// Users may delete subvolumes that they could delete if they were directories.
    pub user_subvol_rm_allowed: bool,
    /// Which reads change the time of last access.
    pub access_times: AccessTimes,
    /// Directories keep theirs.
    pub nodiratime: bool,
    /// Syncing a file is a commit of everything.
    pub notreelog: bool,
    /// The kernel keeps what programs write, and brings it later: a program hears from fsync, or from close, what
    /// write(2) would have told it otherwise.
    pub writeback_cache: bool,
    /// How many inodes the server remembers for the kernel: above that it asks the kernel to drop
    /// those that nobody uses, which Linux 6.18 and newer do.
    pub most_nodes: usize,
    /// The most bytes that one request brings or asks for: a power of two, from 64 KiB to 1 MiB. Each thread has memory
    /// for two of them.
    pub most_io_bytes: usize,
    /// The most threads that serve requests at a time, besides those that wait for the kernel to do what it was told.
    /// Over rings there are two for each processor at least.
    pub most_threads: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            user_subvol_rm_allowed: false,
            access_times: AccessTimes::default(),
            nodiratime: false,
            notreelog: false,
            writeback_cache: false,
            most_nodes: 1 << 17,
            most_io_bytes: 1 << 20,
            most_threads: 128,
        }
    }
}

impl ServerOptions {
    /// What serving may take.
    pub(crate) fn limits(&self) -> Limits {
        Limits { io_bytes: self.most_io_bytes, threads: self.most_threads }
    }
}

/// What of a server is not of the opening of the file system that it serves.
struct Heritage {
    /// The subvolume that is shown.
    root: u64,
    places: Vec<Place>,
    next_stand_in: u64,
    pruning: Arc<Pruning>,
    channel: Arc<Channel>,
    health: Health,
}

/// What an operation comes to.
type Outcome = Result<(), Errno>;

/// A request that is being served: who asked about what.
struct Call<'c> {
    /// The node that it is about.
    id: u64,
    /// The request's own number.
    unique: u64,
    uid: u32,
    gid: u32,
    /// The thread.
    pid: u32,
    kernel: &'c dyn Tell,
}

impl Server {
    /// A server whose root is that of `subvolume`.
    pub fn new(
        filesystem: &Filesystem,
        subvolume: &Subvolume,
        options: ServerOptions,
    ) -> larder::Result<Self> {
        let root = subvolume.root()?.into_inode();
        let owner = rustix::process::geteuid().as_raw();
        let (filesystem, nodes) = (filesystem.clone(), Nodes::new(root));
        let (channel, hidden) = (Arc::default(), Hidden::default());
        let (interrupts, walkers, earlier) = Default::default();
        let pruning = Arc::new(Pruning::new(options.most_nodes));
        Ok(Self {
            filesystem,
            nodes,
            pruning,
            channel,
            hidden,
            owner,
            options,
            interrupts,
            walkers,
            earlier,
            has_selinux: xattr::has_selinux(),
        })
    }

    /// What a server has that is to take the place of this one.
    fn heritage(&self) -> Heritage {
        Heritage {
            root: self.nodes.root().subvolume_id(),
            places: self.nodes.places(),
            next_stand_in: self.nodes.next_stand_in(),
            pruning: self.pruning.clone(),
            channel: self.channel.clone(),
            health: self.health(),
        }
    }

    /// A server of another opening of the same file system, in the place of one that has no request.
    fn that_inherits(
        filesystem: &Filesystem,
        heritage: &Heritage,
        options: ServerOptions,
    ) -> larder::Result<Self> {
        let root = filesystem.subvolume_by_id(heritage.root)?;
        let (pruning, channel) = (heritage.pruning.clone(), heritage.channel.clone());
        let earlier = Some(heritage.health.clone());
        let server = Self { pruning, channel, earlier, ..Self::new(filesystem, &root, options)? };
        server.nodes.inherit(filesystem, &heritage.places, heritage.next_stand_in);
        Ok(server)
    }

    /// How the file system is and was since it was mounted, by this server and by those that it took the place of.
    fn health(&self) -> Health {
        let mut health = self.filesystem.health();
        if let Some(earlier) = &self.earlier {
            health.committed_at = health.committed_at.or(earlier.committed_at);
            health.healed_copies += earlier.healed_copies;
        }
        health
    }

    /// How it serves.
    pub(crate) fn options(&self) -> ServerOptions {
        self.options
    }

    fn node(&self, call: &Call<'_>) -> Result<Arc<Node>, Errno> {
        self.nodes.get(call.id)
    }

    fn serve(&self, operation: Operation<'_>, call: &Call<'_>, reply: &mut Reply<'_>) -> Outcome {
        match operation {
            Operation::Init(init) => init::agree(&init, self.options, call, reply),
            Operation::Open(open) => self.open(call, open, reply),
            Operation::OpenDirectory if self.options.access_times != AccessTimes::Never => {
                self.open_directory(call, reply)
            }
            Operation::Create { name, new } => self.create(call, name, &new, reply),
            Operation::Release(release) => self.release(call, &release),
            Operation::Lookup { name } => self.lookup(call, name, reply),
            Operation::GetAttr => self.get_attributes(call, reply),
            Operation::Statx => self.statx(call, reply),
            Operation::SetAttr(new) => self.set_attributes(call, &new, reply),
            Operation::Readlink => self.readlink(call, reply),
            Operation::Symlink { name, target } => self.symlink(call, name, target, reply),
            Operation::Mknod { name, new } => self.mknod(call, name, &new, reply),
            Operation::Mkdir { name, new } => self.mkdir(call, name, new, reply),
            Operation::Tmpfile { new } => self.tmpfile(call, &new, reply),
            Operation::Unlink { name } => self.unlink(call, name),
            Operation::Rmdir { name } => self.rmdir(call, name),
            Operation::Rename { name, new_directory, new_name, flags } => {
                self.rename(call, name, new_directory, new_name, flags)
            }
            Operation::Link { inode, name } => self.link(call, inode, name, reply),
            Operation::Read(from) => self.read(call, &from, reply),
            Operation::Write { to, data } => self.write(call, &to, data, reply),
            Operation::Lseek(seek) => self.lseek(call, &seek, reply),
            Operation::Fallocate(range) => self.fallocate(call, &range),
            Operation::CopyFileRange(copy) => self.copy_file_range(call, &copy, reply),
            Operation::Fsync => self.fsync(call),
            // umount(2) returns with the reply: nothing is left then that would change anything later.
            Operation::Destroy => {
                self.nodes.forget_all();
                self.filesystem.sync().map_err(failed)
            }
            Operation::Syncfs => self.filesystem.sync().map_err(failed),
            Operation::Readdir { from, plus } => self.readdir(call, &from, plus, reply),
            Operation::Statfs => self.statfs(reply),
            Operation::SetXattr { name, value, flags, setxattr_flags } => {
                self.set_xattr(call, name, value, flags, setxattr_flags)
            }
            Operation::GetXattr { name, size } => self.get_xattr(call, name, size, reply),
            Operation::ListXattr { size } => self.list_xattr(call, size, reply),
            Operation::RemoveXattr { name } => self.remove_xattr(call, name),
            Operation::Ioctl { call: ioctl, data } => self.ioctl(call, &ioctl, data, reply),
            Operation::ReleaseDirectory => Ok(()),
            // What the kernel then does by itself: opening directories, locks, flushing when a file is closed.
            Operation::OpenDirectory | Operation::Other => Err(Errno::NOSYS),
            Operation::Interrupt { .. } | Operation::Forget { .. } | Operation::BatchForget(_) => {
                unreachable!("these are not answered")
            }
        }
    }
}

impl Handler for Server {
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Tell) -> Answer {
        let header = request.header();
        let (uid, gid, pid) = (header.uid, header.gid, header.pid);
        let call = Call { id: header.nodeid, unique: header.unique, uid, gid, pid, kernel };
        match Operation::of(request) {
            Err(errno) => Answer::Error(errno),
            Ok(Operation::Forget { lookups }) => {
                self.nodes.forget(call.id, lookups);
                self.filesystem.delete_unlinked();
                Answer::Nothing
            }
            Ok(Operation::BatchForget(forgets)) => {
                forgets.iter().for_each(|one| self.nodes.forget(one.nodeid, one.nlookup));
                self.filesystem.delete_unlinked();
                Answer::Nothing
            }
            Ok(Operation::Interrupt { unique }) => {
                self.interrupts.interrupt(unique);
                Answer::Nothing
            }
            Ok(operation) => {
                let outcome = self.serve(operation, &call, reply);
                self.pruning.note_growth(self.nodes.len());
                outcome.map_or_else(Answer::Error, |()| Answer::Reply)
            }
        }
    }
}

/// The number of an error of the library.
#[allow(clippy::needless_pass_by_value, reason = "errors are mapped with it")]
fn failed(error: larder::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}
