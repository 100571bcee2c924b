//! What btrfs-progs says. Each function returns the program's output, or an error that holds all that
//! it said.
//!
//! Programs that need to find several devices are given loop devices, for they look for the others
//! among the machine's block devices; the rest read the image files directly.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::command::{CommandError, run};
use crate::guard::{KernelMount, LoopDevice};

/// `btrfs check`, or with `data` also `--check-data-csum`, of an unmounted file system.
///
/// It says nothing on its standard output that can be compared; an error is a finding.
pub fn check(files: &[PathBuf], data: bool) -> Result<String, CommandError> {
    // Several find each other as devices only.
    let attached: Vec<_> = match files {
        [_] => Vec::new(),
        files => files.iter().map(|file| LoopDevice::attach_read_only(file)).collect(),
    };
    // It looks at all that is mounted and stumbles over what others detach meanwhile: that is a warning with this.
    let mut arguments: Vec<&OsStr> =
        vec!["check".as_ref(), "--readonly".as_ref(), "--force".as_ref()];
    if data {
        arguments.push("--check-data-csum".as_ref());
    }
    let last = attached.last().map(LoopDevice::path).or(files.last().map(PathBuf::as_path));
    arguments.push(last.expect("a file system has a device").as_os_str());
    run("btrfs", arguments)
}

/// `btrfs inspect-internal dump-tree` with `options` such as `["-t", "5"]`.
pub fn dump_tree(files: &[PathBuf], options: &[&str]) -> Result<String, CommandError> {
    let command = ["inspect-internal", "dump-tree", "--noscan"].iter().chain(options);
    let files = files.iter().map(|file| file.as_os_str());
    run("btrfs", command.map(OsStr::new).chain(files))
}

/// `btrfs inspect-internal dump-super -f -a` of one device: every copy, every field.
pub fn dump_super(file: &Path) -> Result<String, CommandError> {
    let command = ["inspect-internal", "dump-super", "-f", "-a"].map(OsStr::new);
    run("btrfs", command.into_iter().chain([file.as_os_str()]))
}

/// `btrfs subvolume list` with `options` such as `["-p", "-u"]`.
pub fn subvolume_list(mount: &KernelMount, options: &[&str]) -> Result<String, CommandError> {
    on_mount(&["subvolume", "list"], options, mount)
}

/// `btrfs filesystem df` in bytes.
pub fn filesystem_df(mount: &KernelMount) -> Result<String, CommandError> {
    on_mount(&["filesystem", "df"], &["--raw"], mount)
}

/// `btrfs filesystem usage` in bytes.
pub fn filesystem_usage(mount: &KernelMount) -> Result<String, CommandError> {
    on_mount(&["filesystem", "usage"], &["--raw"], mount)
}

/// `btrfs scrub` in the foreground: every copy of everything read and verified. What it could not
/// correct is an error; what it could is in the output only.
pub fn scrub(mount: &KernelMount) -> Result<String, CommandError> {
    on_mount(&["scrub", "start", "-B"], &[], mount)
}

fn on_mount(
    command: &[&str],
    options: &[&str],
    mount: &KernelMount,
) -> Result<String, CommandError> {
    let command = command.iter().chain(options).map(OsStr::new);
    run("btrfs", command.chain([mount.path().as_os_str()]))
}
