//! `larder umount`.

mod server;

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use larder_fuse::usage::{MountEntry, MountTable, Process, holders, in_words, processes};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use self::server::{MountServer, News};
use crate::outcome::Outcome;

/// Unmount what larder mounted, and wait until all of it is on the devices
///
/// Fails if the last commit did not reach the devices.
///
/// If the file system is mounted in another place too, or in another mount namespace, only this
/// mount ends. The command then waits until all changes are committed, names what still uses the
/// file system, and waits for none of that.
///
/// umount(8) waits for the last commit only where the table of mounts shows fuseblk.larder. Larder's
/// own commands wait for a server that still writes; the kernel does not before it mounts the same
/// image: use `larder umount` then.
///
/// With -f, which only root may use, programs that wait for a killed server get an error.
///
/// Example: larder umount ~/mnt
#[derive(Debug, Args)]
pub struct Umount {
    /// Unmount at once for all processes that do not use it, and for the others when they are done.
    /// What is written until now is committed
    #[arg(short, long)]
    lazy: bool,
    /// End the connection to the server first, for all mounts of the file system: for a server that
    /// is gone, or does not answer
    #[arg(short, long)]
    force: bool,
    /// Say nothing of other users of the file system, as umount(8) does not
    #[arg(long, hide = true)]
    quiet: bool,
    /// Directories that something is mounted at
    #[arg(required = true, value_name = "MOUNTPOINT")]
    mountpoints: Vec<PathBuf>,
}

/// How long a wait goes on before it is reported.
const SILENCE: Duration = Duration::from_secs(2);
/// How often the wait checks what keeps the file system mounted.
const LOOK: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(10);
/// How long the last commit may wait for a device until this command ends with an error. The server
/// goes on.
const OUTAGE: Duration = Duration::from_secs(30);
/// A server that waits says so again within this time.
const SAID_AGAIN: Duration = Duration::from_secs(5);
/// How long a server may go on, with everything committed and no visible user, before the wait
/// ends: a user that this process cannot see holds the mount.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most symbolic links that lead to a mountpoint, as for the kernel.
const MOST_LINKS: usize = 40;

impl Umount {
    pub fn run(self) -> Outcome {
        let absolute: Vec<_> =
            self.mountpoints.iter().map(path::absolute).collect::<io::Result<_>>()?;
        // This process itself may be in one of them.
        let _ = env::set_current_dir("/");
        for (absolute, mountpoint) in absolute.into_iter().zip(&self.mountpoints) {
            self.unmount(absolute).with_context(|| mountpoint.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn unmount(&self, mountpoint: PathBuf) -> anyhow::Result<()> {
        let mountpoint = place_of(mountpoint)?;
        let table = MountTable::of_this_process()?;
        let Some(mount) = table.ours_at(&mountpoint) else {
            bail!("larder has mounted nothing here");
        };
        let server = if self.force { None } else { MountServer::of(mount, &mountpoint) };
        // Opened before, so that it is the file that the mount has open.
        let open = || File::open(&mount.source).with_context(|| mount.source.display().to_string());
        let is_file = !larder_objects::is_url(mount.source.as_os_str());
        let source = is_file.then(open).transpose();
        // The number of a file system is used again once it is gone: only now can the processes
        // that use this one be found.
        let users: Vec<_> =
            processes().filter(|process| process.use_of(mount.device).is_some()).collect();
        let is_unmounted = self.force && end(&mountpoint)?;
        if !is_unmounted && let Err(error) = larder_fuse::unmount(&mountpoint, self.lazy) {
            if Errno::from_io_error(&error) == Some(Errno::INVAL) {
                bail!("another user namespace has made this mount: unmount it there");
            }
            let uses = uses_of(&table, mount);
            if uses.is_empty() {
                return Err(error.into());
            }
            return Err(anyhow!("{}", in_words(uses)).context("Device or resource busy"));
        }
        // Programs can write until the mount ends: so the commit comes after that.
        let mut wait = Wait::new(mount, &users, self.lazy, self.quiet);
        if let Some(server) = server {
            wait.for_commit(&server.commit())?;
        }
        if !wait.is_used
            && !self.lazy
            && let Some(source) = source?
        {
            wait.for_unlocking(&source)?;
        }
        ensure!(
            wait.is_committed || !wait.is_used || self.force,
            "unmounted here, but its server did not answer: changes may not be durable yet"
        );
        Ok(())
    }
}

/// The mountpoint that `path` leads to, through symbolic links. The file system that is mounted
/// there need not answer: only the way to it is looked at.
fn place_of(mut path: PathBuf) -> io::Result<PathBuf> {
    for _ in 0..MOST_LINKS {
        path = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => parent.canonicalize()?.join(name),
            _ => path.canonicalize()?,
        };
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(Errno::LOOP.into())
}

/// Ends the connection of a mount. Returns whether that has unmounted it.
fn end(mountpoint: &Path) -> io::Result<bool> {
    match larder_fuse::end(mountpoint) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
        ended => ended.map(|()| true),
    }
}

/// The users that keep `mount` from being unmounted, as far as they are visible.
fn uses_of(table: &MountTable, mount: &MountEntry) -> Vec<String> {
    let inside = table.inside(mount).map(|it| format!("{} is mounted in it", it.path.display()));
    let processes = processes()
        .filter_map(|process| process.use_of(mount.device).map(|what| format!("{process} {what}")));
    inside.chain(processes).collect()
}

/// A wait for the server of a mount that has ended. It is for the server alone: once everything is
/// committed, no other process can prolong it without a bound.
struct Wait<'m> {
    mount: &'m MountEntry,
    /// Processes that used the file system before.
    users: &'m [Process],
    /// A commit is all that it waits for.
    is_lazy: bool,
    is_quiet: bool,
    start: Instant,
    is_told: bool,
    /// Since when the server says that it waits for a device, and when it has said so last.
    waits: Option<(Instant, Instant)>,
    /// All changes are durable.
    is_committed: bool,
    /// The server goes on, for others.
    is_used: bool,
}

impl<'m> Wait<'m> {
    fn new(mount: &'m MountEntry, users: &'m [Process], is_lazy: bool, is_quiet: bool) -> Self {
        let [is_told, is_committed, is_used] = Default::default();
        let start = Instant::now();
        let waits = None;
        Self { mount, users, is_lazy, is_quiet, start, is_told, waits, is_committed, is_used }
    }

    /// Waits until the server has committed, and then for its end while nothing else uses the file
    /// system.
    fn for_commit(&mut self, news: &Receiver<News>) -> anyhow::Result<()> {
        let mut since = Instant::now();
        loop {
            match news.recv_timeout(LOOK) {
                Ok(News::Committed) => (self.is_committed, since) = (true, Instant::now()),
                // The latter: it answers only root, for another user's mount, and cannot say how it
                // ends.
                Ok(News::Ended(Ok(()))) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(News::Ended(Err(error))) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    bail!(
                        "the server ended without a word: changes that were not synced may be lost"
                    )
                }
                Ok(News::Waits(why)) => self.note_waiting(&why)?,
                Ok(News::Failed(error)) => {
                    let what = "changes since the last commit did not reach the devices";
                    return Err(anyhow!(error).context(what));
                }
                Ok(News::Ended(Err(error))) => return Err(error.into()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.is_committed {
                self.tell();
            } else if self.is_lazy || self.is_held(since.elapsed() > PATIENCE) {
                return Ok(());
            }
        }
    }

    /// Notes that the server waits for a device, and reports it once. An error after a while.
    fn note_waiting(&mut self, why: &str) -> anyhow::Result<()> {
        let now = Instant::now();
        let lasting = self.waits.filter(|(_, last)| now - *last < SAID_AGAIN);
        let (since, _) = lasting.unwrap_or((now, now));
        if lasting.is_none() {
            self.is_told = true;
            let source = self.mount.source.display();
            eprintln!("{source}: the last commit waits, and loses nothing meanwhile: {why}");
        }
        self.waits = Some((since, now));
        ensure!(
            now - since < OUTAGE,
            "unmounted, but the last commit still waits: {why}. The server goes on, and ends once \
             everything is written: do not end it before, and mount nothing elsewhere"
        );
        Ok(())
    }

    /// Waits until the server has unlocked `source`, which it does at its very end: other programs
    /// can open it then.
    fn for_unlocking(&mut self, source: &File) -> anyhow::Result<()> {
        let (start, mut next_look) = (Instant::now(), Instant::now());
        // A server for reading has no lock that would show that it goes on.
        loop {
            if Instant::now() >= next_look {
                if self.is_held(start.elapsed() > PATIENCE) {
                    return Ok(());
                }
                next_look = Instant::now() + LOOK;
            }
            match flock(source, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => {}
                locked => return Ok(locked?),
            }
            self.tell();
            thread::sleep(PAUSE);
        }
    }

    /// Whether something else visibly uses the file system, or must, since it `is_late`. Reports
    /// that.
    fn is_held(&mut self, is_late: bool) -> bool {
        let mut holders = holders(self.mount, self.users);
        if holders.is_empty() && is_late {
            holders.push("processes that this user cannot see still use it".to_owned());
        }
        self.is_used = !holders.is_empty();
        if self.is_used && !self.is_quiet {
            let source = self.mount.source.display();
            let committed = if self.is_committed { " and committed" } else { "" };
            eprintln!("{source}: unmounted here{committed}; {}", in_words(holders));
        }
        self.is_used
    }

    /// Reports after a while that the server still writes.
    fn tell(&mut self) {
        if !self.is_told && self.start.elapsed() >= SILENCE {
            self.is_told = true;
            eprintln!("{}: waiting for the last commit", self.mount.source.display());
        }
    }
}
