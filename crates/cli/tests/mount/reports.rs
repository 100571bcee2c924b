//! Errors are reported: by the server, by commands that ask it, and in the state that it leaves.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use larder_testkit::sparse_file::sparse_copy;
use larder_testkit::{ImageSpec, KernelImage, KernelMount, Scratch, content::Content, oracle};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{larder, succeed, wait_until};

const SECTOR: usize = 4096;
/// Chunks are after this offset, in bytes.
const BEFORE_CHUNKS: &str = "1048576";

/// A server in the foreground, and its reports.
struct Server {
    scratch: Scratch,
    child: Option<Child>,
}

impl Server {
    /// A new file system that is not served.
    fn unmounted(mkfs: &[&str]) -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("mnt")).unwrap();
        let server = Self { scratch, child: None };
        succeed(larder().args(["mkfs", "-q", "-b", "512M"]).args(mkfs).arg(server.image()));
        server
    }

    /// Serves it; `program` is what runs the server.
    fn start(&mut self, mut program: Command, options: &[&str]) {
        program.args(["mount", "-f"]).args(options).arg(self.image()).arg(self.path());
        let said = File::create(self.scratch.path().join("said")).unwrap();
        program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        self.child = Some(program.spawn().unwrap());
        let point = format!(" {} ", self.path().display());
        wait_until("it is mounted", || {
            fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&point)
        });
    }

    fn image(&self) -> PathBuf {
        self.scratch.path().join("disk.img")
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.scratch.path().join("said")).unwrap()
    }

    fn umount(&self) -> Output {
        larder().arg("umount").arg(self.path()).output().unwrap()
    }

    fn end(&mut self) -> ExitStatus {
        self.child.take().unwrap().wait().unwrap()
    }

    fn stop(&mut self) {
        assert!(self.umount().status.success());
        assert!(self.end().success());
    }

    fn health(&self) -> (bool, String) {
        let output = larder().arg("health").arg(self.path()).output().unwrap();
        (output.status.success(), text(&output.stdout))
    }

    fn health_as_json(&self) -> serde_json::Value {
        let mut command = larder();
        command.args(["--format", "json", "health"]).arg(self.path());
        let output = command.output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["health"].take()
    }

    /// The counter with this name of the one device.
    fn counter(&self, name: &str) -> u64 {
        let stats = succeed(larder().args(["device", "stats"]).arg(self.path()));
        let prefix = format!("[{}].{name} ", self.image().display());
        let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("{stats}")).trim().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
            let _ = child.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The program, which can write to no file beyond `BEFORE_CHUNKS`.
fn limited() -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--fsize={BEFORE_CHUNKS}")).arg(larder().get_program());
    command
}

/// Writes a file and syncs it, which fails as the devices do.
fn write_in_vain(directory: &Path) {
    let file = File::create(directory.join("file")).and_then(|mut file| {
        file.write_all(b"bread")?;
        file.sync_all()
    });
    let error = file.unwrap_err();
    assert!(matches!(Errno::from_io_error(&error), Some(Errno::IO | Errno::ROFS)), "{error}");
}

#[test]
fn a_failed_commit_is_reported_by_the_server_and_to_callers() {
    let mut server = Server::unmounted(&[]);
    server.start(limited(), &[]);
    let (is_well, health) = server.health();
    assert!(is_well && health.contains("before it was mounted"), "{health}");
    let as_json = server.health_as_json();
    assert!(as_json["committed"].is_null() && as_json["read-only"].is_null(), "{as_json}");
    write_in_vain(&server.path());
    let (is_well, health) = server.health();
    assert!(!is_well && health.contains("read-only since"), "{health}");
    assert!(health.contains("File too large") && health.contains(" write, "), "{health}");
    assert!(server.counter("write_io_errs") > 0);
    let as_json = server.health_as_json();
    let reason = as_json["read-only"]["reason"].as_str().unwrap();
    let since = as_json["read-only"]["since"].as_str().unwrap();
    // The text has no zone.
    let told = format!("read-only since {}: {reason}\n", &since[..since.len() - " +0000".len()]);
    assert!(health.contains(&told), "{told}{health}");
    let device = &as_json["devices"][0];
    assert_eq!(device["write_io_errs"], server.counter("write_io_errs"), "{device}");
    assert_eq!(device["device"], *server.image().display().to_string());
    // Reading goes on: the signal that comes with such an error ends nothing.
    fs::read_dir(server.path()).unwrap();
    let umount = server.umount();
    let complaint = text(&umount.stderr);
    assert_eq!(umount.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("did not reach the devices"), "{complaint}");
    assert!(complaint.contains("File too large"), "{complaint}");
    assert_eq!(server.end().code(), Some(1));
    let said = server.said();
    assert!(said.contains("ERROR: the file system is read-only from now on: "), "{said}");
    assert!(said.contains("ERROR: device 1: "), "{said}");
    assert!(said.contains("did not reach the devices"), "{said}");
    oracle::check(&[server.image()], true).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_commit_that_fails_in_the_background_is_told_by_umount() {
    let server = Server::unmounted(&[]);
    succeed(limited().arg("mount").arg(server.image()).arg(server.path()));
    write_in_vain(&server.path());
    let umount = server.umount();
    assert_eq!(umount.status.code(), Some(1));
    assert!(text(&umount.stderr).contains("did not reach the devices"));
    succeed(larder().arg("mount").arg(server.image()).arg(server.path()));
    assert!(server.umount().status.success());
}

#[test]
fn signals_end_the_server_with_the_result_of_the_last_commit() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        for (program, code) in [(larder(), 0), (limited(), 1)] {
            let mut server = Server::unmounted(&[]);
            server.start(program, &["-o", "commit=300"]);
            fs::write(server.path().join("file"), "bread").unwrap();
            kill_process(Pid::from_child(server.child.as_ref().unwrap()), signal).unwrap();
            assert_eq!(server.end().code(), Some(code), "{signal:?}: {}", server.said());
        }
    }
}

/// The offsets of these bytes in `file`.
fn places_of(file: &Path, bytes: &[u8]) -> Vec<u64> {
    let mut content = Vec::new();
    File::open(file).unwrap().read_to_end(&mut content).unwrap();
    let sectors = content.chunks_exact(SECTOR).enumerate();
    sectors.filter(|(_, sector)| *sector == bytes).map(|(at, _)| (at * SECTOR) as u64).collect()
}

#[test]
fn bad_copies_are_told_and_counted_for_good() {
    let mut server = Server::unmounted(&["-d", "dup"]);
    server.start(larder(), &[]);
    let sector = |number: u8| vec![b'a' + number; SECTOR];
    fs::write(server.path().join("file"), (0..16).flat_map(sector).collect::<Vec<_>>()).unwrap();
    server.stop();
    let image = File::options().write(true).open(server.image()).unwrap();
    let spoil = |number, copy: usize| {
        let places = places_of(&server.image(), &sector(number));
        assert_eq!(places.len(), 2);
        image.write_all_at(&[0; SECTOR], places[copy]).unwrap();
    };
    // Whichever copy is read first has something to repair.
    spoil(3, 0);
    spoil(4, 1);
    drop(image);
    server.start(larder(), &[]);
    let read = fs::read(server.path().join("file")).unwrap();
    assert_eq!(read, (0..16).flat_map(sector).collect::<Vec<_>>());
    wait_until("it is told", || server.said().contains("healed from a good copy"));
    assert!(server.said().contains("WARNING: a bad copy of 4096 bytes at logical address "));
    assert!(server.health().1.contains("Healed copies:   1"), "{}", server.health().1);
    assert_eq!(server.health_as_json()["healed-copies"], 1);
    assert_eq!(server.counter("corruption_errs"), 1);
    server.stop();
    // Both copies of one sector.
    for place in places_of(&server.image(), &sector(9)) {
        let mut image = File::options().write(true).open(server.image()).unwrap();
        image.seek(SeekFrom::Start(place)).unwrap();
        image.write_all(&[0; SECTOR]).unwrap();
    }
    server.start(larder(), &["--log-level=error"]);
    assert_eq!(server.counter("corruption_errs"), 1, "it was kept");
    let error = fs::read(server.path().join("file")).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    wait_until("it is told", || server.said().contains("ERROR: no good copy: data at "));
    assert!(!server.said().contains("WARNING"), "{}", server.said());
    let stats = || larder().args(["device", "stats", "-c"]).arg(server.path()).output().unwrap();
    assert_eq!(stats().status.code(), Some(64));
    let counters = text(&stats().stdout);
    let of_image = succeed(larder().args(["device", "stats"]).arg(server.image()));
    assert_eq!(of_image, counters);
    let counted = server.counter("corruption_errs");
    assert!(counted >= 3);
    let reset = succeed(larder().args(["device", "stats", "-z"]).arg(server.path()));
    assert_eq!(reset, counters, "it says what was");
    assert_eq!(stats().status.code(), Some(0));
    server.stop();
    // Both checkers accept the items with the counters.
    oracle::check(&[server.image()], false).unwrap_or_else(|error| panic!("{error}"));
    server.start(larder(), &["-o", "ro"]);
    assert_eq!(server.counter("corruption_errs"), 0);
    server.stop();
}

#[test]
fn the_kernel_counts_the_same_things() {
    let image = KernelImage::build(&ImageSpec::new("device-stats"), &Content::new(7));
    let theirs = KernelMount::open(image.devices(), "ro");
    let ask = |program: &OsStr| {
        succeed(Command::new(program).args(["device", "stats", "-c"]).arg(theirs.path()))
    };
    assert_eq!(ask(larder().get_program()), ask(OsStr::new("btrfs")));
    let device = theirs.devices().next().expect("a device");
    for words in [
        &["device", "stats"][..],
        &["device", "stats", "-T"],
        &["--format", "json", "device", "stats"],
    ] {
        let of_device = |program: &OsStr| succeed(Command::new(program).args(words).arg(device));
        assert_eq!(of_device(larder().get_program()), of_device(OsStr::new("btrfs")), "{words:?}");
    }
    let refused = larder().args(["device", "stats", "/dev/null"]).output().unwrap();
    assert!(!refused.status.success() && text(&refused.stderr).contains("/dev/null"));
    let refused = larder().arg("health").arg(theirs.path()).output().unwrap();
    assert!(text(&refused.stderr).contains("larder has mounted nothing here"));
}

#[test]
fn replaying_a_log_is_told() {
    let mut server = Server::unmounted(&[]);
    server.start(larder(), &["-o", "commit=300"]);
    fs::write(server.path().join("before"), "bread").unwrap();
    succeed(larder().args(["filesystem", "sync"]).arg(server.path()));
    let mut file = File::create(server.path().join("file")).unwrap();
    file.write_all(b"butter").unwrap();
    file.sync_all().unwrap();
    let copy = server.scratch.path().join("copy.img");
    fs::copy(server.image(), &copy).unwrap();
    drop(file);
    server.stop();
    fs::rename(copy, server.image()).unwrap();
    server.start(larder(), &[]);
    wait_until("it is told", || server.said().contains("INFO: the log is replayed"));
    let said = server.said();
    assert!(said.contains("INFO: a crash left a log, which is being replayed: "), "{said}");
    assert_eq!(fs::read(server.path().join("file")).unwrap(), b"butter");
    server.stop();
}

/// A mount in the background that fails, in a mount namespace in which the system's log is `log`:
/// nothing is mounted, so that no server is in that namespace.
fn fail_in_namespace(scratch: &Scratch, link: &str) {
    let line = format!(
        "mount --bind {} /mnt && mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && \
         mount -t tmpfs none /run && mkdir -p /run/systemd/journal && ln -s /mnt/log {link} && \
         exec {} mount /mnt/missing.img /mnt",
        scratch.path().display(),
        larder().get_program().display(),
    );
    let output = Command::new("unshare").args(["-m", "bash", "-c", &line]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("missing.img").count(), 1, "{said}");
}

/// The messages that reach a log of the system.
fn received(log: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    loop {
        let len = log.recv(&mut bytes).expect("something comes");
        // journald is asked with an empty message whether it is there.
        if len > 0 {
            return text(&bytes[..len]);
        }
    }
}

#[test]
fn the_background_tells_syslog_and_journald() {
    for link in ["/dev/log", "/run/systemd/journal/socket"] {
        let scratch = Scratch::new();
        let log = UnixDatagram::bind(scratch.path().join("log")).unwrap();
        log.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        fail_in_namespace(&scratch, link);
        let message = received(&log);
        assert!(message.contains("/mnt/missing.img: "), "{message}");
        if link == "/dev/log" {
            assert!(message.starts_with("<27>") && message.contains(" larder["), "{message}");
        } else {
            assert!(message.contains("PRIORITY\n\u{1}\0\0\0\0\0\0\x003\n"), "{message}");
            let identifier = "SYSLOG_IDENTIFIER\n\u{6}\0\0\0\0\0\0\0larder\n";
            assert!(message.contains(identifier), "{message}");
        }
    }
}

#[test]
fn closed_and_full_streams_are_no_panic() {
    let mut server = Server::unmounted(&[]);
    let mut closed = Command::new("bash");
    closed.args(["-c", "exec \"$0\" \"$@\" <&- >&- 2>&-"]).arg(larder().get_program());
    server.start(closed, &[]);
    let pid = server.child.as_ref().unwrap().id();
    for stream in 0..3 {
        let target = fs::read_link(format!("/proc/{pid}/fd/{stream}")).unwrap();
        assert_eq!(target, Path::new("/dev/null"));
    }
    fs::write(server.path().join("file"), "bread").unwrap();
    server.stop();
    for stderr in ["2>&-", "2>/dev/full"] {
        let line = format!("exec \"$0\" ls nothing.img:/ {stderr}");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).arg(larder().get_program());
        assert_eq!(shell.status().unwrap().code(), Some(1), "{stderr}");
    }
}

/// The progress of bringing a device up to date is reported while the file system is being mounted,
/// in tenths if standard error is no terminal; and not once the device is up to date.
#[test]
fn mounting_says_how_far_a_returned_device_is() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("mnt")).unwrap();
    fs::write(at("file"), vec![7; 16 << 20]).unwrap();
    let profiles = ["mkfs", "-q", "-d", "raid1", "-m", "raid1", "-b", "400M"];
    succeed(larder().args(profiles).args([at("a.img"), at("b.img")]));
    sparse_copy(&at("b.img"), &at("old.img")).unwrap();
    let into = format!("{}:/", at("a.img").display());
    succeed(larder().arg("cp").arg("--device").arg(at("b.img")).arg(at("file")).arg(into));
    fs::rename(at("old.img"), at("b.img")).unwrap();
    let mount = || {
        let mut command = larder();
        let output =
            command.arg("mount").args([at("a.img"), at("b.img"), at("mnt")]).output().unwrap();
        succeed(larder().arg("umount").arg(at("mnt")));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    };
    let said = mount();
    let tenths: Vec<usize> =
        (1..=10).filter_map(|tenth| said.find(&format!("{tenth}0 % of the "))).collect();
    assert!(tenths.len() > 1 && tenths.is_sorted(), "{said}");
    assert!(said.contains("100 % of the "), "{said}");
    let said = mount();
    assert!(!said.contains(" % of the "), "{said}");
}
