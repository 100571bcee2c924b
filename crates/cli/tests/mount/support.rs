//! A mounted file system, and what must be true of it in the end.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use larder_testkit::manifest::{Body, Manifest, Timestamp, assert_same};
use larder_testkit::{KernelMount, RingsOffered, Scratch, oracle};
use rustix::process::Pid;

/// How long a mount namespace of another test may exist.
const MOMENT: Duration = Duration::from_secs(30);
/// How long a daemon may take to come or go before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    /// Whether this thread's mounts use rings of io_uring.
    static OVER_RINGS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test with all its mounts served through rings of io_uring instead of `/dev/fuse`.
pub(crate) fn over_rings(test: impl FnOnce()) {
    let _over = OverRings(RingsOffered::new());
    OVER_RINGS.set(true);
    test();
}

/// Whether this thread's mounts use rings.
pub(crate) fn is_over_rings() -> bool {
    OVER_RINGS.get()
}

/// A setting that lasts until this is dropped.
struct OverRings(#[allow(dead_code, reason = "it is held")] RingsOffered);

impl Drop for OverRings {
    fn drop(&mut self) {
        OVER_RINGS.set(false);
    }
}

/// The mount options that say which way requests go.
fn transport() -> [&'static str; 2] {
    ["-o", if is_over_rings() { "io_uring" } else { "no_io_uring" }]
}

/// The program.
pub(crate) fn larder() -> Command {
    Command::new(env!("CARGO_BIN_EXE_larder"))
}

/// A copy of the program in `folder`. Other users may not look into a build directory.
///
/// Another process copies it: a child that another thread starts meanwhile would inherit a
/// descriptor for writing, and nobody may run a file that is open for writing.
pub(crate) fn larder_in(folder: &Path) -> PathBuf {
    let copy = folder.join("larder");
    succeed(Command::new("cp").arg(env!("CARGO_BIN_EXE_larder")).arg(&copy));
    copy
}

/// Runs a command that must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Runs a line in a shell in `directory`; it must succeed.
#[track_caller]
pub(crate) fn shell(directory: &Path, line: &str) -> String {
    succeed(Command::new("bash").args(["-euo", "pipefail", "-c", line]).current_dir(directory))
}

/// The output of a script of Python that runs in `folder`; it must succeed.
#[track_caller]
pub(crate) fn python(folder: &Path, script: &str, arguments: &[&str]) -> String {
    let mut python = Command::new("/usr/bin/python3");
    succeed(python.args(["-c", script]).args(arguments).current_dir(folder))
}

/// The output must be the kernel's, line by line.
#[track_caller]
pub(crate) fn assert_same_lines(seen: &str, expected: &str) {
    for (seen, expected) in seen.lines().zip(expected.lines()) {
        assert_eq!(seen, expected);
    }
    assert_eq!(seen.lines().count(), expected.lines().count());
}

/// A new file system that larder has mounted; unmounted when dropped.
pub(crate) struct Mounted {
    scratch: Scratch,
    /// What is mounted: an image, or a URL.
    source: PathBuf,
    /// What the program needs to reach it.
    environment: Vec<(&'static str, String)>,
    is_mounted: bool,
    /// The server, if it is a child of this process.
    server: Option<Child>,
}

impl Mounted {
    /// One that is served in the background.
    pub(crate) fn new() -> Self {
        Self::with_size("2G")
    }

    /// One of this size.
    pub(crate) fn with_size(size: &str) -> Self {
        let mut mounted = Self::unmounted();
        mounted.mount(&["--create", size]);
        mounted
    }

    /// One whose kernel caches writes.
    pub(crate) fn with_writeback_cache() -> Self {
        let mut mounted = Self::unmounted();
        mounted.mount(&["--create", "2G", "-o", "writeback_cache"]);
        mounted
    }

    /// One whose server is a child of this process.
    pub(crate) fn in_foreground() -> Self {
        let mut mounted = Self::unmounted();
        mounted.serve_in_foreground(&[]);
        mounted
    }

    /// Mounts a new image with a server that is a child of this process.
    pub(crate) fn serve_in_foreground(&mut self, arguments: &[&str]) {
        self.serve(&[&["--create", "2G"], arguments].concat());
    }

    /// Mounts with a server that is a child of this process.
    pub(crate) fn serve(&mut self, arguments: &[&str]) {
        let mut command = self.larder();
        command.args(["mount", "-f"]).args(arguments).args(transport());
        command.arg(&self.source).arg(self.path());
        if !self.environment.is_empty() {
            command.stderr(File::options().append(true).create(true).open(self.log()).unwrap());
        }
        self.server = Some(command.stdin(Stdio::null()).spawn().expect("it starts"));
        wait_until("it is mounted", || {
            let ended = self.server.as_mut().expect("it started").try_wait().unwrap();
            let log = || fs::read_to_string(self.log()).unwrap_or_default();
            assert!(ended.is_none(), "{}: {}", ended.unwrap(), log());
            self.is_in_table()
        });
        self.is_mounted = true;
    }

    /// A place for an image and a directory to mount it at.
    pub(crate) fn unmounted() -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("mnt")).unwrap();
        let source = scratch.path().join("disk.img");
        Self { scratch, source, environment: Vec::new(), is_mounted: false, server: None }
    }

    /// A place for the objects of a file system, which a directory holds.
    pub(crate) fn on_objects() -> Self {
        let mut mounted = Self::unmounted();
        mounted.source = format!("file://{}/objects", mounted.folder().display()).into();
        mounted
    }

    /// A place for the mount of a URL that the program reaches with `environment`.
    pub(crate) fn at(url: String, environment: Vec<(&'static str, String)>) -> Self {
        let mut mounted = Self::unmounted();
        (mounted.source, mounted.environment) = (url.into(), environment);
        mounted
    }

    /// The program, with what it needs to reach the source.
    pub(crate) fn larder(&self) -> Command {
        let mut command = larder();
        command.envs(self.environment.clone());
        command
    }

    /// Where a server that is a child of this process says what went wrong, if what it serves is a
    /// URL.
    pub(crate) fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    /// What is mounted: an image, or a URL.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    #[track_caller]
    pub(crate) fn mount(&mut self, arguments: &[&str]) {
        let mut command = self.larder();
        command.arg("mount").args(arguments).args(transport()).arg(&self.source).arg(self.path());
        succeed(&mut command);
        self.is_mounted = true;
    }

    #[track_caller]
    pub(crate) fn unmount(&mut self) {
        // A program that another test starts has our open files for a moment.
        wait_until("it is unmounted", || {
            let output = larder().arg("umount").arg(self.path()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            eprint!("{said}");
            if said.contains("in the mount namespace of") {
                self.wait_for_namespaces();
            }
            output.status.success()
        });
        self.is_mounted = false;
        if let Some(mut server) = self.server.take() {
            assert!(server.wait().unwrap().success());
        }
    }

    /// A namespace that another test makes has all mounts for a moment.
    fn wait_for_namespaces(&self) {
        let start = Instant::now();
        let is_open = || larder_device::in_use(self.image()).is_ok_and(|used| used.is_some());
        while is_open() && start.elapsed() < MOMENT {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The server, if it is a child of this process.
    pub(crate) fn server_pid(&self) -> Pid {
        Pid::from_child(self.server.as_ref().expect("it is a child"))
    }

    /// Kills the server, in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("it is a child");
        server.kill().unwrap();
        // One of its threads may wait in the kernel for data that no process takes any more.
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::FORCE);
        server.wait().unwrap();
        detach(&self.path());
        self.is_mounted = false;
    }

    /// Waits for the end of the server, which was killed. The mount stays.
    pub(crate) fn reap(&mut self) {
        self.server.take().expect("it is a child").wait().unwrap();
    }

    /// The most that the server ever had resident, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let pid = self.server_pid().as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Rings of io_uring that the server has.
    pub(crate) fn count_rings(&self) -> usize {
        rings_of(self.server.as_ref().expect("it is a child").id())
    }

    /// How often serving threads left a processor so far.
    pub(crate) fn count_switches(&self) -> u64 {
        let tasks = format!("/proc/{}/task", self.server.as_ref().expect("it is a child").id());
        let tasks = fs::read_dir(tasks).expect("it is there");
        // A thread may end meanwhile.
        let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("status"));
        let statuses = tasks.filter_map(|task| of_task(task.ok()?).ok());
        let serves = |status: &String| {
            ["Name:\tlarder-fuse\n", "Name:\tlarder-ring\n"]
                .iter()
                .any(|name| status.starts_with(name))
        };
        let statuses = statuses.filter(serves);
        let count = |line: &str| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok();
        statuses.map(|status| status.lines().filter_map(count).sum::<u64>()).sum()
    }

    /// Sends the server a signal, and waits for its end.
    pub(crate) fn end(&mut self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.server_pid(), signal).unwrap();
        self.wait();
    }

    /// Waits for the end of the server, which has unmounted or does.
    pub(crate) fn wait(&mut self) {
        let mut server = self.server.take().expect("it is a child");
        assert!(server.wait().unwrap().success());
        self.is_mounted = false;
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(path)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.scratch.path().join("disk.img")
    }

    /// The folder that the image is in.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs a line in a shell in the root directory.
    #[track_caller]
    pub(crate) fn shell(&self, line: &str) -> String {
        shell(&self.path(), line)
    }

    fn is_in_table(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(&format!(" {} ", self.path().display()))
    }

    /// Unmounts, runs both checkers, and compares with the files that the kernel shows.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        let shown = comparable(Manifest::of_tree(&self.path()));
        self.unmount();
        self.check();
        let kernel = KernelMount::open(&[self.image()], "ro");
        assert_same(&comparable(Manifest::of_tree(kernel.path())), &shown);
    }

    /// Runs both checkers.
    #[track_caller]
    pub(crate) fn check(&self) {
        if !self.is_mounted {
            self.wait_for_namespaces();
        }
        oracle::check(&[self.image()], true).unwrap_or_else(|error| panic!("{error}"));
        succeed(larder().args(["check", "--check-data-csum"]).arg(self.image()));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            detach(&self.path());
        }
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Rings of io_uring that the process `id` has.
pub(crate) fn rings_of(id: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{id}/fd")).expect("it is there");
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.filter(|target| target.as_os_str() == "anon_inode:[io_uring]").count()
}

/// Loop devices that are attached to the image.
pub(crate) fn loop_devices(image: &Path) -> String {
    succeed(Command::new("losetup").args(["--noheadings", "-O", "NAME", "-j"]).arg(image))
}

fn detach(point: &Path) {
    let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
}

/// A manifest without what differs on a FUSE mount: numbers of inodes across subvolumes, access
/// times, and allocated bytes while data that replaces other is dirty.
pub(crate) fn comparable(mut manifest: Manifest) -> Manifest {
    for entry in manifest.entries.values_mut() {
        (entry.inode, entry.subvolume, entry.allocated_bytes) = (0, 0, 0);
        entry.atime = Timestamp::default();
        if let Body::Folder { names } = &mut entry.body {
            names.sort();
        }
    }
    manifest
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program as the user nobody, and lets that user open /dev/fuse.
pub(crate) fn as_nobody(program: impl AsRef<OsStr>) -> Command {
    fs::set_permissions("/dev/fuse", Permissions::from_mode(0o666)).expect("there is FUSE");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    command
}

/// Writes files below `folder`, one after the other and each of its own byte, until others are done;
/// one in `one_in_synced` is synced. Returns how many there are.
pub(crate) fn write_files(folder: &Path, is_done: &AtomicBool, one_in_synced: usize) -> usize {
    let mut number = 0;
    while !is_done.load(Relaxed) {
        let mut file = File::create(folder.join(format!("new{number}"))).unwrap();
        file.write_all(&vec![number as u8; WRITTEN_BYTES]).unwrap();
        if number % one_in_synced == 0 {
            file.sync_all().unwrap();
        }
        number += 1;
    }
    number
}

/// All files that [`write_files`] wrote have their content.
#[track_caller]
pub(crate) fn assert_written(folder: &Path, files: usize) {
    for number in 0..files {
        let found = fs::read(folder.join(format!("new{number}"))).unwrap();
        assert_eq!(found, vec![number as u8; WRITTEN_BYTES]);
    }
}

const WRITTEN_BYTES: usize = 100_000;
