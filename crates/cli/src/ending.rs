//! Waiting for servers whose mounts have ended and that still write.
//!
//! The system's `umount` returns once no mount is visible any more; the last commit of its server
//! then still follows. The next command must find the result of that commit.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use larder_device::InUse;
use larder_fuse::usage::{MountEntry, Process, namespaces, processes};

/// How long a wait goes on before it is reported.
const SILENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(30);

/// Waits until no server whose mounts have ended has one of `paths` open for writing, and reports
/// it if that takes long. A signal ends the program as usual.
pub fn wait_for_ending_servers(paths: &[impl AsRef<Path>]) {
    for path in paths.iter().map(AsRef::as_ref) {
        let mut wait = Wait::new(path);
        while let Some(server) = ending_server(path) {
            wait.goes_on(server);
        }
    }
}

/// The server that has `path` open for writing although no mount shows it.
fn ending_server(path: &Path) -> Option<Process> {
    if larder_device::in_use(path).ok()? != Some(InUse::Locked) {
        return None;
    }
    let server = processes().find(|process| is_server(*process) && process.has_locked(path))?;
    mount_of(server).is_none().then_some(server)
}

/// A wait for a server to end or begin.
pub struct Wait<'p> {
    path: &'p Path,
    start: Instant,
    is_told: bool,
}

impl<'p> Wait<'p> {
    /// A wait that begins now, for the server that has `path` open.
    pub fn new(path: &'p Path) -> Self {
        Self { path, start: Instant::now(), is_told: false }
    }

    /// Sleeps for a moment, and reports after a while that `server` must end.
    pub fn goes_on(&mut self, server: Process) {
        if !self.is_told && self.start.elapsed() >= SILENCE {
            self.is_told = true;
            eprintln!(
                "{}: {server} still writes to it after its mount ended; waiting, interrupt to give up",
                self.path.display()
            );
        }
        thread::sleep(PAUSE);
    }

    /// How long it has taken.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The process that serves a mount of the image at `path`, or begins or ends doing so.
pub fn server_of(path: &Path) -> Option<Process> {
    processes().find(|process| {
        is_server(*process) && process.has_open(path) && !serves_a_sprout(*process, path)
    })
}

/// Whether `path` leads to a seed, and `server` serves a file system that was grown from it.
fn serves_a_sprout(server: Process, path: &Path) -> bool {
    if !larder::is_seed(path) {
        return false;
    }
    let seer = Process { pid: std::process::id() };
    let Some((_, mount)) = mount_of(server).filter(|(it, _)| it.pid == seer.pid) else {
        return false;
    };
    let info = File::open(&mount.path).and_then(larder_ioctl::filesystem_info);
    info.is_ok_and(|info| larder::uuid_of(path).is_some_and(|uuid| uuid != info.uuid))
}

/// A mount that `server` serves, with a process that can reach it: this one, if it can reach any.
pub fn mount_of(server: Process) -> Option<(Process, MountEntry)> {
    namespaces().find_map(|(seer, table)| {
        let mount = table.ours().find(|mount| server.serves(mount, seer))?;
        Some((seer, mount.clone()))
    })
}

/// Whether `process` is `larder mount`, however far the word was abbreviated.
fn is_server(process: Process) -> bool {
    let words = process.command_line();
    let [program, command, ..] = words.as_slice() else { return false };
    let program = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_mount = |word: &str| word.starts_with("mo") && "mount".starts_with(word);
    program.contains("larder") && command.to_str().is_some_and(is_mount)
}
