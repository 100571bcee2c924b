//! Runs btrfs-progs. Each function returns the program's output, or an error with all of it.
//!
//! Programs that need several devices get loop devices, since they look for the others among the
//! machine's block devices; the rest read the image files directly.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::command::{CommandError, run};
use crate::guard::{KernelMount, LoopDevice};

/// `btrfs check`, or with `data` also `--check-data-csum`, of an unmounted file system.
///
/// Its standard output cannot be compared; an error is a finding. If it finds an error without
/// naming it, its other mode decides, which keeps nothing from one tree for the next: the default
/// mode reports an inode without names as an error when it meets it again in another tree that
/// shares the leaf (in 6.2, also for images of the kernel).
pub fn check(files: &[PathBuf], data: bool) -> Result<String, CommandError> {
    // Only devices find each other.
    let attached: Vec<_> = match files {
        [_] => Vec::new(),
        files => files.iter().map(|file| LoopDevice::attach_read_only(file)).collect(),
    };
    let last = attached.last().map(LoopDevice::path).or(files.last().map(PathBuf::as_path));
    let last = last.expect("a file system has a device");
    // It looks at all mounts, and a mount that goes meanwhile is an error, but with --force only a
    // warning.
    let mut arguments = vec!["check", "--readonly", "--force"];
    arguments.extend(data.then_some("--check-data-csum"));
    let check = |mode: Option<&str>| {
        let arguments = arguments.iter().copied().chain(mode).map(OsStr::new);
        run("btrfs", arguments.chain([last.as_os_str()]))
    };
    check(None).or_else(|error| {
        if names_nothing(&error.stderr) { check(Some("--mode=lowmem")) } else { Err(error) }
    })
}

/// Whether `btrfs check` only says that it found an error in trees of files. Devices of other tests
/// that it cannot scan, since they fail on purpose or are being detached, are no findings.
fn names_nothing(stderr: &str) -> bool {
    let no_findings = ["[", "WARNING:", "ERROR: cannot scan "];
    let is_finding = |line: &&str| !no_findings.iter().any(|start| line.starts_with(start));
    let mut findings = stderr.lines().filter(is_finding);
    findings.next() == Some("ERROR: errors found in fs roots") && findings.next().is_none()
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

/// `btrfs scrub` in the foreground: reads and verifies every copy of everything. Uncorrectable
/// errors are an error; corrected ones are only in the output.
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

#[cfg(test)]
mod tests {
    use super::names_nothing;

    #[test]
    fn a_named_error_is_a_finding() {
        let said = |named: &str| {
            names_nothing(&format!(
                "[3/7] checking free space tree\n[4/7] checking fs roots\n{named}ERROR: errors found in fs roots\n"
            ))
        };
        assert!(said(""));
        assert!(names_nothing(
            "ERROR: cannot scan /dev/loop8: Input/output error\n[4/7] checking fs roots\nERROR: errors found in fs roots\n"
        ));
        assert!(!said("root 5 inode 257 errors 200, dir isize wrong\n"));
        assert!(!names_nothing("[4/7] checking fs roots\n"));
        assert!(!names_nothing("ERROR: errors found in root refs\n"));
    }
}
