//! The memory of a server is bounded, however many files programs look at.

use std::fs::{self, File};
use std::process::Command;
use std::thread;

use crate::support::{Mounted, succeed};

const FOLDERS: usize = 100;
const FILES: usize = 1000;
const WALKS: usize = 9;
/// What `--memory` gives, and twice that for what is under way.
const BOUND_KIB: u64 = 3 * (128 << 10);

/// The most that the server ever had resident, in KiB.
fn peak(mounted: &Mounted) -> u64 {
    let pid = mounted.server_pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
pub(crate) fn many_files_and_walks_fit_into_three_times_what_it_was_given() {
    let mut mounted = Mounted::unmounted();
    mounted.serve_in_foreground(&["--memory", "128M"]);
    for folder in 0..FOLDERS {
        let folder = mounted.join(folder.to_string());
        fs::create_dir(&folder).unwrap();
        for file in 0..FILES {
            File::create_new(folder.join(file.to_string())).unwrap();
        }
    }
    for _ in 0..WALKS {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| succeed(Command::new("ls").arg("-lR").arg(mounted.path())));
            }
        });
    }
    let peak = peak(&mounted);
    assert!(peak <= BOUND_KIB, "{peak} KiB");
    mounted.unmount();
    mounted.check();
}
