//! `larder umount`.

use std::env;
use std::fs::File;
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use larder_fuse::usage::{MountEntry, MountTable, Process, namespaces, processes};
use larder_ioctl::channel::Ending;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Outcome;

/// Unmount what larder mounted, and wait until all of it is on the devices
///
/// Fails if the last commit did not reach the devices.
///
/// If the file system is mounted in another place too, or in another mount namespace, only this
/// mount ends: the command names what still uses it, and waits for nothing.
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
    /// Unmount at once for all processes that do not use it, and for the others when they are done
    #[arg(short, long)]
    lazy: bool,
    /// End the connection to the server first, for all mounts of the file system: for a server that
    /// is gone, or does not answer
    #[arg(short, long)]
    force: bool,
    /// Directories that something is mounted at
    #[arg(required = true, value_name = "MOUNTPOINT")]
    mountpoints: Vec<PathBuf>,
}

/// The most users of a mount that are named.
const MOST_NAMED: usize = 8;
/// How long a wait goes on before it is reported.
const SILENCE: Duration = Duration::from_secs(2);
/// How often the wait checks what keeps the file system mounted.
const LOOK: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(10);
/// How long a server may take to answer before it is unmounted anyway.
const PATIENCE: Duration = Duration::from_secs(5);

impl Umount {
    pub fn run(self) -> Outcome {
        let absolute: Vec<_> =
            self.mountpoints.iter().map(path::absolute).collect::<io::Result<_>>()?;
        // This process itself may be in one of them.
        let _ = env::set_current_dir("/");
        for (absolute, mountpoint) in absolute.iter().zip(&self.mountpoints) {
            self.unmount(absolute).with_context(|| mountpoint.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn unmount(&self, mountpoint: &Path) -> anyhow::Result<()> {
        // The file system itself need not answer: only the way to it is looked at.
        let mountpoint = match (mountpoint.parent(), mountpoint.file_name()) {
            (Some(parent), Some(name)) => parent.canonicalize()?.join(name),
            _ => mountpoint.canonicalize()?,
        };
        let table = MountTable::of_this_process()?;
        let Some(mount) = table.ours_at(&mountpoint) else {
            bail!("larder has mounted nothing here");
        };
        let ending = if self.force || self.lazy { None } else { ending_of(&mountpoint) };
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
            let uses = uses_of(&table, mount);
            if uses.is_empty() {
                return Err(error.into());
            }
            return Err(anyhow!("{}", uses.join(", ")).context("Device or resource busy"));
        }
        let is_over = !self.lazy && wait_for_server(mount, &users, source?.as_ref())?;
        ending.filter(|_| is_over).map_or(Ok(()), Ending::wait).map_err(|error| {
            match error.kind() {
                io::ErrorKind::UnexpectedEof => anyhow!(
                    "the server ended without a word: changes that were not synced may be lost"
                ),
                _ => error.into(),
            }
        })
    }
}

/// Asks the server of a mount to say how it ends; waits only for a while for its answer.
fn ending_of(mountpoint: &Path) -> Option<Ending> {
    let (answer, ending) = channel();
    let mountpoint = mountpoint.to_owned();
    // A thread, which a server that does not answer blocks as long as this process exists.
    thread::spawn(move || answer.send(File::open(mountpoint).and_then(Ending::of)));
    ending.recv_timeout(PATIENCE).ok()?.ok()?
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
    let mut uses: Vec<_> = inside.chain(processes).take(MOST_NAMED + 1).collect();
    if uses.len() > MOST_NAMED {
        uses.truncate(MOST_NAMED);
        uses.push("and more".to_owned());
    }
    uses
}

/// Waits until the server of `mount`, which has `source` open, has ended: it holds the lock until
/// the last byte is written. If it has no file open, its last word is all that there is to wait for.
/// A server goes on as long as the file system is in use, for example by
/// one of `users`: then this reports that. Returns whether the server has ended.
fn wait_for_server(
    mount: &MountEntry,
    users: &[Process],
    source: Option<&File>,
) -> anyhow::Result<bool> {
    let start = Instant::now();
    let (mut is_told, mut next_look) = (false, start);
    loop {
        // A server for reading has no lock that would show that it goes on.
        if Instant::now() >= next_look {
            if let Some(holder) = holder_of(mount, users) {
                eprintln!("{}: unmounted here; {holder}", mount.source.display());
                return Ok(false);
            }
            next_look = Instant::now() + LOOK;
        }
        let Some(source) = source else { return Ok(true) };
        match flock(source, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {}
            locked => return Ok(locked.map(|()| true)?),
        }
        if !is_told && start.elapsed() >= SILENCE {
            is_told = true;
            eprintln!("{}: waiting for the last commit", mount.source.display());
        }
        thread::sleep(PAUSE);
    }
}

/// What keeps the file system of `mount` mounted: another mount, or one of `users`.
fn holder_of(mount: &MountEntry, users: &[Process]) -> Option<String> {
    let elsewhere = namespaces().enumerate().find_map(|(number, (process, table))| {
        let is_it = |other: &&MountEntry| other.is_ours && other.source == mount.source;
        let place = table.of_device(mount.device).find(is_it)?.path.display().to_string();
        Some(match number {
            0 => format!("still mounted at {place}"),
            _ => format!("still mounted at {place} in the mount namespace of {process}"),
        })
    });
    elsewhere.or_else(|| {
        users.iter().find_map(|user| user.use_of(mount.device).map(|what| format!("{user} {what}")))
    })
}
