//! Waiting for servers whose mounts have ended, and which still write.
//!
//! `umount` of the system returns once nothing shows a mount any more; the last commit of its server is then still to
//! come. A command that comes next has to find what that commit leaves.

use std::ffi::OsStr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use larder_device::InUse;
use larder_fuse::usage::{MountEntry, Process, namespaces, processes};

/// How long a wait may go on before it is told.
const SILENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(30);

/// Waits until no server whose mounts have ended has one of `paths` open for writing, and says so if that takes
/// long. A signal ends the program as ever.
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

/// A wait for a server that ends, or begins.
pub struct Wait<'p> {
    path: &'p Path,
    start: Instant,
    is_told: bool,
}

impl<'p> Wait<'p> {
    /// One that begins now, for the server that has `path` open.
    pub fn new(path: &'p Path) -> Self {
        Self { path, start: Instant::now(), is_told: false }
    }

    /// Lets a moment pass, and says after a while that it is `server` that has to end.
    pub fn goes_on(&mut self, server: Process) {
        if !self.is_told && self.start.elapsed() >= SILENCE {
            self.is_told = true;
            eprintln!(
                "{}: {server} still writes what was mounted from it; waiting, interrupt to give up",
                self.path.display()
            );
        }
        thread::sleep(PAUSE);
    }

    /// How long it takes already.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The process that serves a mount of what is at `path`, or begins or ends doing so.
pub fn server_of(path: &Path) -> Option<Process> {
    processes().find(|process| is_server(*process) && process.has_open(path))
}

/// A mount that `server` serves, with the process that can reach it: this one, if it can reach any.
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
