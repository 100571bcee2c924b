//! Waiting for servers whose mounts have ended, and which still write.
//!
//! `umount` of the system returns once nothing shows a mount any more; the last commit of its server is then still to
//! come. A command that comes next has to find what that commit leaves.

use std::ffi::OsStr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use larder_device::InUse;
use larder_fuse::usage::{Process, namespaces, processes};

/// How long a wait may go on before it is told.
const SILENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(30);

/// Waits until no server whose mount has ended has one of `paths` open for writing, and says so if that takes
/// long. A signal ends the program as ever.
pub fn wait_for_ending_servers(paths: &[impl AsRef<Path>]) {
    for path in paths.iter().map(AsRef::as_ref) {
        let start = Instant::now();
        let mut is_told = false;
        while let Some(server) = ending_server(path) {
            if !is_told && start.elapsed() >= SILENCE {
                is_told = true;
                eprintln!(
                    "{}: {server} still writes what was mounted from it; waiting, interrupt to give up",
                    path.display()
                );
            }
            thread::sleep(PAUSE);
        }
    }
}

/// The server that has `path` open for writing although no mount shows it.
fn ending_server(path: &Path) -> Option<Process> {
    if larder_device::in_use(path).ok()? != Some(InUse::Locked) {
        return None;
    }
    let server = processes().find(|process| is_server(*process) && process.has_locked(path))?;
    let is_mounted =
        namespaces().any(|(process, table)| !process.mounts_of(&table, path).is_empty());
    (!is_mounted).then_some(server)
}

/// Whether `process` is `larder mount`, however far the word was abbreviated.
fn is_server(process: Process) -> bool {
    let words = process.command_line();
    let [program, command, ..] = words.as_slice() else { return false };
    let program = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_mount = |word: &str| word.starts_with("mo") && "mount".starts_with(word);
    program.contains("larder") && command.to_str().is_some_and(is_mount)
}
