//! A mount: the kernel's requests become calls of the library `larder`.
//!
//! - [`Server`]: serves requests from a [`Filesystem`](larder::Filesystem).
//! - [`Mount`]: what it serves, mounted.
//! - [`unmount`], [`usage`]: what a command needs to end a mount, and to find out why it cannot.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fs = larder::OpenOptions::new().write(true).open(["disk.img"])?;
//! let server = larder_fuse::Server::new(&fs, &fs.default_subvolume()?, Default::default())?;
//! let mount = larder_fuse::Mount::new("/mnt".as_ref(), server, &Default::default())?;
//! mount.serve()?; // until it is unmounted
//! mount.sync()?;
//! # Ok(())
//! # }
//! ```
//!
//! `docs/mount.md` says what users of a mount can rely on.
//!
//! # Invariants
//! - `protocol` knows bytes, `transport` knows descriptors, `server` knows the library; none knows
//!   more than that.
//! - No request can make the server panic, hang, or allocate beyond its buffers and what the file
//!   system has.
//! - The kernel checks permissions (`default_permissions`) and may cache what it was told for ever:
//!   all changes pass through it, except subvolumes that an ioctl makes or deletes, and what a
//!   client of the channel changes or receives. The server tells it of those.
//! - Only `transport` has `unsafe`: for system calls, and for memory that comes from the kernel.
//! - A handler writes its reply where the transport sends it from. A request takes no memory
//!   besides the thread's two buffers.
//! - A handler that panics costs one request an `EIO`. The thread, or the entry of a ring, goes on.
//! - A connection begins on `/dev/fuse`. Where the kernel offers io_uring and the process may use
//!   it, rings carry all further requests: a queue for each processor, with threads that are pinned
//!   there. The transport finds out before it answers INIT whether it gets rings, memory and
//!   threads. If it does not, `/dev/fuse` carries everything.
//! - A thread that takes a request when no other thread waits starts another first, up to a bound.
//!   So a slow request delays no other.
//! - A thread that tells the kernel something may wait there for any request. So it gives up its
//!   slot among the threads that serve before it tells the kernel (`transport/away.rs`), or leaves
//!   that to a thread that serves nothing (`transport/soon.rs`). Over rings one entry of each queue
//!   never does (`transport/io_uring/seasoned.rs`).
//! - The ids of users and groups that a mount shows and those that are stored are of different
//!   types; `server/owners.rs` alone turns one into the other. Of a caller the kernel names them in few
//!   requests (`server/ids.rs`).
//! - `server/nodes.rs` says which numbers and generations nodes have; `server/pruning.rs`, when the
//!   server asks the kernel to forget inodes; `server/open.rs`, what an open decides.
//! - A request of a process that is being killed is answered at once, whatever the server waits for
//!   (`transport/in_progress.rs`, `server/unheard.rs`); over rings, if it may take long.
//! - A server may follow what somebody else writes: the kernel may cache little then.
//! - A remount exchanges the server while the mount is in use (`server/exchange.rs`). Further
//!   mounts are mounts of the same superblock (`server/further.rs`).
//! - `usage` reads from `/proc` alone what is mounted where, and which processes use it: a server
//!   that hangs holds up no command.
//! - A listing ends where its directory ended when the listing last began. So a program that
//!   renames the entries that it lists comes to an end.
//! - A server that ends says over the channel how it ended, to every client that asked before the
//!   mount was gone.
#![deny(unsafe_code)]

mod options;
mod protocol;
mod scrubbed;
mod server;
#[allow(unsafe_code)]
mod transport;
pub mod usage;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

pub use options::{AccessTimes, MountOptions, ServerOptions};
pub use scrubbed::scrub_progress;
pub use server::{FurtherMount, ReadFurther, ReadOptions, Server, Settings};
pub use transport::{Tree, can_mount_parts, end, remount, unmount};

use server::Exchange;
use transport::{DevFuse, Limits, Mounted, SyncCalls, Transport};

/// So often clients hear why the end of a mount waits.
const PAUSE: Duration = Duration::from_secs(1);

/// A file system that a server serves, mounted. Programs that use it wait until
/// [`serve`](Self::serve) is called.
#[derive(Debug)]
pub struct Mount {
    server: Exchange,
    transport: DevFuse,
    sync: SyncCalls,
    /// The number of the file system, as in `st_dev`.
    number: u64,
}

impl Mount {
    /// Mounts at the directory `mountpoint`.
    pub fn new(mountpoint: &Path, server: Server, options: &MountOptions) -> io::Result<Self> {
        let mounted = transport::mount(mountpoint, options, server.options())?;
        Ok(Self::of(mounted, server, options))
    }

    /// Mounts at no place yet, which only root can. The file system is unmounted when the tree is
    /// dropped or, once attached, when it is unmounted there.
    pub fn in_no_place(server: Server, options: &MountOptions) -> io::Result<(Self, Tree)> {
        let (mounted, tree) = transport::mount_in_no_place(options, server.options())?;
        Ok((Self::of(mounted, server, options), tree))
    }

    fn of(mounted: Mounted, server: Server, options: &MountOptions) -> Self {
        let Mounted { device, superblock, sync, number } = mounted;
        let transport = DevFuse::new(device, options, Limits::of(server.options()));
        let server = Exchange::new(server, options.read_only, superblock, number);
        Self { server, transport, sync, number }
    }

    /// Why sync(2) and syncfs(2) do not make everything durable, if root mounts and they could.
    pub fn sync_error(&self) -> Option<&io::Error> {
        match &self.sync {
            SyncCalls::Failed(error) => Some(error),
            SyncCalls::Reach | SyncCalls::DoNotReach => None,
        }
    }

    /// Unmounts all mounts that this process sees. [`serve`](Self::serve) goes on until no process
    /// uses the file system. If `lazily`, the mounts disappear at once, and processes that use them
    /// go on.
    pub fn unmount(&self, lazily: bool) -> io::Result<()> {
        transport::unmount_own(self.number, lazily, &self.sync)
    }

    /// Serves requests until the file system is unmounted.
    pub fn serve(&self) -> io::Result<()> {
        self.serve_and(|| ())
    }

    /// Like [`serve`](Self::serve), and calls `begun` once programs that use the mount need not
    /// wait for the server to begin. If it is unmounted before, `begun` is not called.
    pub fn serve_and(&self, begun: impl FnOnce()) -> io::Result<()> {
        server::beside(&self.server, &self.transport, || self.transport.serve(&self.server, begun))
    }

    /// Lets root, and the user who runs the server, change mount options while it is mounted, and
    /// lets root mount it in further places: a client that has one of `devices` open. `read` and
    /// `read_further` are called with all lists of options: `said` and that of each remount.
    pub fn configure(
        &self,
        devices: &[PathBuf],
        said: Vec<String>,
        read: Box<ReadOptions>,
        read_further: Box<ReadFurther>,
    ) {
        self.server.configure(devices, said, read, read_further);
    }

    /// Makes all changes durable that reached the server.
    pub fn sync(&self) -> larder::Result<()> {
        self.server.sync()
    }

    /// The same once no mount is left. Meanwhile clients that asked how it ends hear why it waits, if
    /// it does.
    pub fn sync_at_the_end(&self) -> larder::Result<()> {
        let (ended, has_ended) = channel::<()>();
        thread::scope(|scope| {
            let tell = move || {
                while has_ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    self.server.say_why_it_waits();
                }
            };
            // Without the thread nobody hears it.
            let _ = thread::Builder::new().spawn_scoped(scope, tell);
            let synced = self.sync();
            drop(ended);
            synced
        })
    }

    /// Makes all changes durable while another thread [serves](Self::serve), also those that only
    /// the kernel has.
    pub fn commit(&self) -> larder::Result<()> {
        self.server.commit(&self.transport)
    }

    /// The generation of the last commit, unless the file system could not be opened again.
    pub fn generation(&self) -> Option<u64> {
        self.server.generation()
    }

    /// What watchers want to know, in the text format of Prometheus, unless the file system could
    /// not be opened again.
    pub fn metrics(&self) -> Option<String> {
        self.server.metrics()
    }

    /// Shows the newest state of the devices, opened as `open` says, if it is another one than before.
    ///
    /// # Errors
    /// Why the state before is still shown. The health of the mount has the same reason.
    pub fn follow(&self, open: &larder::OpenOptions) -> Result<(), String> {
        self.server.follow(open, &self.transport)
    }

    /// Tells all clients that asked whether the last commit reached the devices, or why it did not.
    /// If this mount is dropped before, they assume that it did not.
    pub fn say_how_it_ended(&self, failure: Option<&str>) {
        self.server.say_how_it_ended(failure);
    }
}
