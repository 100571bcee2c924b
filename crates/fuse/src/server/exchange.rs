//! Replaces a server while its mount is in use: a file system that was opened for reading is opened
//! for writing, or the other way round; or somebody else has written a newer state.
//!
//! # Invariants
//! - One server serves a request from beginning to end. While servers are exchanged, requests wait;
//!   none is lost.
//! - A request that is being served may need others to be served. So a request waits for an
//!   exchange only when none is being served; an exchange waits for such a moment, and gives up
//!   after a while.
//! - The kernel has nothing to write back when the file system is closed for writing: it was told
//!   first that the file system is read-only.
//! - The kernel is made to forget names only if the file system differs from what it was shown:
//!   with a name it unmounts all that is mounted below.
//! - The devices are never open twice for writing, and a server that was replaced writes nothing.
//! - A server that follows is replaced by one that shows a whole later state. The kernel keeps pages
//!   that it read before until it is told to forget them, right after that: it waits for reads that are
//!   on their way, and drops what they bring. It keeps names and attributes for a moment, and no
//!   listings. So it shows nothing for longer than the user has said, as long as the store answers.
//! - If the newest state cannot be shown, the one before stays, and the health has the reason.

use std::fmt;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use larder::OpenOptions;
use larder_platform::errno::in_words;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustix::io::Errno;

use super::channel::{Channel, get_written_data};
use super::configuration::{Configuration, ReadFurther, ReadOptions, Settings};
use super::images::Images;
use super::nodes::Nodes;
use super::pruning::{CurrentNodes, Pruning};
use super::refusal::{Refusal, refuse};
use super::state::Server;
use crate::protocol::abi::ShownId;
use crate::protocol::{Answer, Notice, Reply, Request};
use crate::transport::{Handler, Notify, Superblock, Tell};

/// How long an exchange waits for a moment without requests.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long that of a server that follows does: the next look tries again.
const MOMENT: Duration = Duration::from_secs(1);

/// The server that serves now.
pub(crate) struct Exchange {
    server: RwLock<Current>,
    pub(super) channel: Arc<Channel>,
    pub(super) pruning: Arc<Pruning>,
    pub(super) owner: ShownId,
    /// The source of further mounts, if this process can make any.
    pub(super) superblock: Option<Superblock>,
    pub(super) images: OnceLock<Images>,
    /// Locked while a remount or a further mount is made.
    pub(super) configuration: Mutex<Option<Configuration>>,
    /// Clients that keep the server that serves now, for as long as they like.
    clients: AtomicUsize,
    follows: bool,
}

/// A client, until this is dropped.
struct Client<'c>(&'c AtomicUsize);

impl<'c> Client<'c> {
    fn new(clients: &'c AtomicUsize) -> Self {
        clients.fetch_add(1, Relaxed);
        Self(clients)
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct Current {
    /// `None` after the file system could not be opened again.
    server: Option<Server>,
    read_only: bool,
}

impl Exchange {
    /// `number` is that of the mounted file system, as in `st_dev`.
    pub(crate) fn new(
        server: Server,
        read_only: bool,
        superblock: Option<Superblock>,
        number: u64,
    ) -> Self {
        server.views.set_number(number);
        let (channel, pruning) = (server.channel.clone(), server.pruning.clone());
        let (owner, follows) = (server.owner, server.options.follow.is_some());
        let server = RwLock::new(Current { server: Some(server), read_only });
        let (images, configuration, clients) = Default::default();
        Self {
            server,
            channel,
            pruning,
            owner,
            superblock,
            images,
            configuration,
            clients,
            follows,
        }
    }

    /// Tells all clients that asked how the last commit ended: `failure` is why it did not reach
    /// the devices.
    pub(crate) fn say_how_it_ended(&self, failure: Option<&str>) {
        self.channel.say_how_it_ended(failure);
    }

    /// Tells them why it waits at this time, if it does.
    pub(crate) fn say_why_it_waits(&self) {
        let current = self.server.read_recursive();
        if let Some(why) = current.server.as_ref().and_then(|server| server.health().waits) {
            self.channel.say_why_it_waits(&why);
        }
    }

    /// The generation of the last commit.
    pub(crate) fn generation(&self) -> Option<u64> {
        let current = self.server.read_recursive();
        current.server.as_ref().map(|server| server.filesystem.generation())
    }

    /// The metrics, unless the file system could not be opened again.
    pub(crate) fn metrics(&self) -> Option<String> {
        let current = self.server.read_recursive();
        current.server.as_ref().map(Server::metrics)
    }

    /// Sets what remounts start from: the lists of options `said`, for a file system on `devices`.
    pub(crate) fn configure(
        &self,
        devices: &[PathBuf],
        said: Vec<String>,
        read: Box<ReadOptions>,
        read_further: Box<ReadFurther>,
    ) {
        let _ = self.images.set(Images::at(devices));
        *self.configuration.lock() = Some(Configuration { read, read_further, said });
    }

    /// Whether the mount refuses all changes now.
    pub(super) fn is_read_only(&self) -> bool {
        self.server.read_recursive().read_only
    }

    /// Whether `file` is a mounted image that is open for writing. Fails if it is none.
    pub(super) fn is_writable_image(&self, file: impl AsFd) -> Result<bool, Refusal> {
        self.images.get().unwrap_or(&Images::default()).is_writable(file)
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&self) -> larder::Result<()> {
        match &self.server.read_recursive().server {
            Some(server) => server.filesystem.sync(),
            None => Ok(()),
        }
    }

    /// Makes all changes durable, also those that only the kernel has. The calling thread serves no
    /// requests: the kernel needs some served meanwhile.
    pub(crate) fn commit(&self, kernel: &dyn Notify) -> larder::Result<()> {
        match &self.server.read_recursive().server {
            Some(server) => {
                get_written_data(server, kernel);
                server.filesystem.sync()
            }
            None => Ok(()),
        }
    }

    /// Runs `work` with the server that serves now. No exchange interrupts it.
    pub(super) fn with_server<T>(
        &self,
        work: impl FnOnce(&Server) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let current = self.server.read_recursive();
        let _client = Client::new(&self.clients);
        match &current.server {
            Some(server) => work(server),
            None => Err(not_open()),
        }
    }

    /// The server for a request. A server that follows takes no more requests while it waits for its
    /// exchange, so that the moment for that comes: no request to a file system that is open for
    /// reading needs another one.
    fn serving(&self) -> RwLockReadGuard<'_, Current> {
        if self.follows { self.server.read() } else { self.server.read_recursive() }
    }

    /// Shows the newest state of the devices, opened as `open` says, if it is another one.
    pub(crate) fn follow(&self, open: &OpenOptions, kernel: &dyn Notify) -> Result<(), String> {
        let followed = self.try_follow(open);
        if let Some(server) = &self.server.read_recursive().server {
            *server.behind.lock() = followed.as_ref().err().cloned();
        }
        if followed? {
            self.forget_content(kernel);
        }
        Ok(())
    }

    /// Returns whether there is another state.
    fn try_follow(&self, open: &OpenOptions) -> Result<bool, String> {
        let current = self.server.read_recursive();
        let Some(server) = &current.server else { return Ok(false) };
        let before = server.filesystem.clone();
        drop(current);
        let newer = open.open_newer(&before).map_err(|error| error.to_string())?;
        let Some(newer) = newer else { return Ok(false) };
        if self.clients.load(Relaxed) > 0 {
            return Err("a client sends a snapshot, or reads the file system".to_owned());
        }
        let Some(mut current) = self.server.try_write_for(MOMENT) else {
            return Err("requests to the state before are being served".to_owned());
        };
        let Some(server) = &mut current.server else { return Ok(false) };
        let next = Server::taking_over(&newer, &server.handover(), server.options.clone());
        let before = std::mem::replace(server, next.map_err(|error| in_words(&error))?);
        drop(current);
        drop(before);
        Ok(true)
    }

    /// Changes mount options: `words` come after all lists that were given before.
    pub(super) fn remount(&self, words: &str, kernel: &dyn Notify) -> Result<(), Refusal> {
        let mut configuration = self.configuration.lock();
        let Some(Configuration { read, said, .. }) = &mut *configuration else {
            return Err(refuse(Errno::OPNOTSUPP, "this mount cannot be remounted"));
        };
        let said_now = [&**said, &[words.to_owned()]].concat();
        let settings = read(&said_now).map_err(|message| refuse(Errno::INVAL, &message))?;
        let Some(mut current) = self.server.try_write_for(PATIENCE) else {
            return Err(refuse(
                Errno::BUSY,
                "requests are on their way, or a client sends or receives a snapshot, or reads the \
                 file system: try again later",
            ));
        };
        let has_changed = current.go_on(&settings)?;
        drop(current);
        *said = said_now;
        drop(configuration);
        if has_changed {
            self.forget_all(kernel);
        }
        Ok(())
    }

    /// Makes the kernel forget all that it was shown.
    fn forget_all(&self, kernel: &dyn Notify) {
        // Older kernels keep names that are in use.
        let _ = kernel.notify(&Notice::all_names());
        self.forget_content(kernel);
    }

    /// Makes the kernel forget attributes and content.
    fn forget_content(&self, kernel: &dyn Notify) {
        // The kernel may wait for requests meanwhile, so no lock is held.
        for node in self.look(Nodes::records).unwrap_or_default() {
            let _ = kernel.notify(&Notice::content(node.id, 0, 0));
        }
    }
}

impl CurrentNodes for Exchange {
    fn look<T>(&self, look: impl FnOnce(&Nodes) -> T) -> Option<T> {
        self.server.read_recursive().server.as_ref().map(|server| look(&server.nodes))
    }
}

impl Current {
    /// Applies `settings`. Returns whether the file system differs from what the kernel was shown:
    /// opening it replayed a log, or another program changed it while it was mounted for reading.
    fn go_on(&mut self, settings: &Settings) -> Result<bool, Refusal> {
        let Some(server) = &mut self.server else {
            return Err(not_open());
        };
        if settings.read_only == self.read_only {
            if !self.read_only {
                settings.open.apply(&server.filesystem)?;
            }
            server.options = settings.server.clone();
            return Ok(false);
        }
        if settings.read_only {
            // Orphans that are still open are deleted with the next mount.
            server.filesystem.sync()?;
        }
        let handover = server.handover();
        let was_shown = server.filesystem.generation();
        if settings.read_only {
            self.server = None;
        }
        let filesystem = settings.open.clone().mounted(true).open(&settings.devices)?;
        let next = Server::taking_over(&filesystem, &handover, settings.server.clone())?;
        let before = self.server.replace(next);
        self.read_only = settings.read_only;
        drop(before);
        Ok(filesystem.generation() != was_shown)
    }
}

fn not_open() -> Refusal {
    refuse(Errno::IO, "the file system could not be opened again: unmount it")
}

impl Handler for Exchange {
    fn unheard(&self, request: &Request<'_>, body: &[u8], kernel: &dyn Tell) {
        if let Some(server) = &self.serving().server {
            server.unheard(request, body, kernel);
        }
    }

    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Tell) -> Answer {
        match &self.serving().server {
            Some(server) => server.handle(request, reply, kernel),
            None => Answer::Error(Errno::IO),
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("channel", &self.channel).finish_non_exhaustive()
    }
}
