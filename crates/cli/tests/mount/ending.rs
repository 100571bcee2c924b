//! How mounts end: the next command waits for the last commit, and users of a mount are named.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use larder_testkit::Scratch;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Mounted, as_nobody, larder, larder_in, shell, succeed, wait_until};

/// A server of the user nobody that has ended its mount and cannot go on to its last commit.
struct Stopped {
    scratch: Scratch,
    server: Child,
}

impl Stopped {
    fn new() -> Self {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name);
        larder_in(scratch.path());
        fs::create_dir(at("mnt")).unwrap();
        for path in [scratch.path().to_owned(), at("mnt")] {
            fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        let mut command = as_nobody(at("larder"));
        command.args(["mount", "-f", "--create", "1G", "disk.img", "mnt"]);
        let server = command.current_dir(scratch.path()).stdin(Stdio::null()).spawn().unwrap();
        let stopped = Self { scratch, server };
        wait_until("it is mounted", || {
            stopped.user("mountpoint -q mnt").status().unwrap().success()
        });
        // Dirty data in the kernel would wait for the server.
        succeed(&mut stopped.user("dd if=/dev/zero of=mnt/f bs=4k count=1 conv=fsync status=none"));
        kill_process(Pid::from_child(&stopped.server), Signal::STOP).unwrap();
        rustix::mount::unmount(stopped.at("mnt"), UnmountFlags::empty()).unwrap();
        stopped
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn user(&self, line: &str) -> Command {
        let mut command = as_nobody("bash");
        command.args(["-euc", line]).current_dir(self.scratch.path());
        command
    }

    /// Starts `larder` with `words`, and returns it once it has reported that it waits.
    fn waiting(&self, words: &[&str]) -> (Child, BufReader<ChildStderr>) {
        let mut command = as_nobody(self.at("larder"));
        command.args(words).current_dir(self.scratch.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let server = format!("process {} (larder) still writes", self.server.id());
        assert!(line.contains(&server), "{words:?}: {line}");
        (child, said)
    }

    /// The server goes on, and ends.
    fn go_on(&mut self) {
        kill_process(Pid::from_child(&self.server), Signal::CONT).unwrap();
        assert!(self.server.wait().unwrap().success());
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.at("mnt"), UnmountFlags::DETACH);
        let _ = kill_process(Pid::from_child(&self.server), Signal::CONT);
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
pub(crate) fn the_next_command_waits_for_a_server_that_still_writes() {
    let mut stopped = Stopped::new();
    let list = ["ls", "disk.img:/"];
    let commands: [&[&str]; 5] = [
        &["mount", "disk.img", "mnt"],
        &list,
        &["check", "disk.img"],
        &["filesystem", "label", "disk.img", "new"],
        &["inspect", "dump-super", "disk.img"],
    ];
    // One that changes the file system each time.
    for (number, words) in commands.iter().enumerate() {
        if number > 0 {
            stopped = Stopped::new();
        }
        let (mut child, mut said) = stopped.waiting(words);
        stopped.go_on();
        let status = child.wait().unwrap();
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert!(status.success(), "{words:?}: {rest}");
        if number == 0 {
            succeed(&mut stopped.user("test $(stat -c %s mnt/f) = 4096; ./larder umount mnt"));
        }
    }
    let (mut child, _said) = {
        stopped = Stopped::new();
        stopped.waiting(&["mkfs", "-q", "-f", "disk.img"])
    };
    stopped.go_on();
    assert!(child.wait().unwrap().success());
    assert_eq!(succeed(&mut stopped.user("./larder ls disk.img:/")), "");
}

#[test]
fn commands_that_wait_for_a_server_can_be_interrupted() {
    let stopped = Stopped::new();
    for (words, signal) in [
        (["mount", "disk.img", "mnt"], Signal::INT),
        (["touch", "disk.img:/f", "disk.img:/g"], Signal::TERM),
    ] {
        let (mut child, mut said) = stopped.waiting(&words);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        // All processes that it has started end with it.
        said.read_to_end(&mut Vec::new()).unwrap();
    }
    assert!(
        !fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .contains(stopped.at("mnt").to_str().unwrap())
    );
}

#[test]
pub(crate) fn a_script_that_unmounts_and_mounts_again_is_never_refused() {
    let mut mounted = Mounted::new();
    for round in 0..3 {
        mounted.shell(&format!("head -c 50M /dev/urandom > f{round}; sha256sum f{round} >> sums"));
        // A program that another test starts has our open files for a moment.
        let unmounts = || Command::new("umount").arg(mounted.path()).status().unwrap().success();
        wait_until("it is unmounted", unmounts);
        mounted.mount(&[]);
        mounted.shell("sha256sum -c --quiet sums");
    }
    mounted.finish();
}

/// The standard error of `larder umount`, and whether it succeeds.
fn umount(path: &std::path::Path) -> (bool, String) {
    let output = larder().arg("umount").arg(path).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn remaining_users_of_a_file_system_are_reported_and_not_waited_for() {
    let mounted = Mounted::new();
    let bound = mounted.folder().join("bound");
    fs::create_dir(&bound).unwrap();
    mounted.shell("mkdir d; echo bread > d/f");
    rustix::mount::mount_bind(mounted.join("d"), &bound).unwrap();
    let (succeeds, said) = umount(&bound);
    let still = format!("still mounted at {}", mounted.path().display());
    assert!(succeeds && said.contains(&still), "{said}");
    assert_eq!(fs::read(mounted.join("d/f")).unwrap(), b"bread\n");

    // A copy of all mounts that only a shell sees.
    let mut copy = Command::new("unshare");
    copy.args(["-m", "--propagation", "private", "sh", "-c", "echo; read line"]);
    let mut copy = copy.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    copy.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let (succeeds, said) = umount(&mounted.path());
    let elsewhere = format!("{still} in the mount namespace of process {} (sh)", copy.id());
    assert!(succeeds && said.contains(&elsewhere), "{said}");
    copy.stdin.take().unwrap().write_all(b"\n").unwrap();
    copy.wait().unwrap();
    // This waits for the server, which ends now.
    succeed(larder().arg("check").arg(mounted.image()));
    mounted.check();
}

/// A program that maps a file for writing, stores to it, and keeps it until its input ends.
const STORES: &str = "import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.truncate(f, 4096); m = mmap.mmap(f, 4096)
m[:6] = b'stored'; print('ready', flush=True); sys.stdin.read()";

/// A program that has stored to `path`, and that runs as `arguments` say.
fn storing(arguments: &[&str], path: &str, folder: &std::path::Path) -> Child {
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).args(["/usr/bin/python3", "-c", STORES, path]);
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    program
}

/// What a power cut now would leave of `file`.
fn after_power_cut(mounted: &Mounted, file: &str) -> String {
    let copy = mounted.folder().join("cut.img");
    succeed(Command::new("cp").arg("--sparse=always").arg(mounted.image()).arg(&copy));
    let path = format!("{}:/{file}", copy.display());
    let output = larder().arg("cat").arg(path).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim_end_matches('\0').to_owned()
}

#[test]
fn umount_commits_what_others_keep_in_use() {
    for options in [&["-o", "commit=300"][..], &["-o", "commit=300,writeback_cache"]] {
        let mut mounted = Mounted::unmounted();
        mounted.serve_in_foreground(options);
        // Another mount namespace, in which a program stores to a mapping.
        let private = ["unshare", "-m", "--propagation", "private"];
        let mut program = storing(&private, "mnt/mapped", mounted.folder());
        mounted.shell("echo written > f");
        let (succeeds, said) = umount(&mounted.path());
        assert!(succeeds && said.contains("unmounted here and committed"), "{said}");
        let holder = format!("process {} (python3)", program.id());
        assert!(said.contains(&holder), "{said}");
        assert_eq!(after_power_cut(&mounted, "f"), "written\n");
        assert_eq!(after_power_cut(&mounted, "mapped"), "stored");
        drop(program.stdin.take());
        program.wait().unwrap();
        mounted.wait();
    }
}

#[test]
fn umount_of_a_user_waits_for_no_other_user() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    larder_in(scratch.path());
    fs::create_dir(at("mnt")).unwrap();
    for path in [scratch.path().to_owned(), at("mnt")] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let user = |line: &str| {
        let mut command = as_nobody("bash");
        command.args(["-euc", line]).current_dir(scratch.path());
        command
    };
    succeed(&mut user("./larder mount -o commit=300 --create 1G disk.img mnt; echo bread > mnt/f"));
    // The user cannot see this namespace.
    let mut copy = Command::new("unshare");
    copy.args(["-m", "--propagation", "private", "sh", "-c", "echo; read line"]);
    let mut copy = copy.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    copy.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let output = user("./larder umount mnt").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("cannot see still use it"), "{said}");
    succeed(&mut user("cp disk.img cut.img; test $(./larder cat cut.img:/f) = bread"));
    copy.stdin.take().unwrap().write_all(b"\n").unwrap();
    copy.wait().unwrap();
    succeed(&mut user("./larder check disk.img"));
}

#[test]
fn sigterm_commits_at_once_while_files_are_open() {
    for options in [&["-o", "commit=300"][..], &["-o", "commit=300,writeback_cache"]] {
        let mut mounted = Mounted::unmounted();
        mounted.serve_in_foreground(options);
        let mut program = storing(&["env"], "mnt/mapped", mounted.folder());
        mounted.shell("mkdir d; echo written > d/f");
        kill_process(mounted.server_pid(), Signal::TERM).unwrap();
        wait_until("it has committed", || after_power_cut(&mounted, "d/f") == "written\n");
        assert_eq!(after_power_cut(&mounted, "mapped"), "stored");
        // It goes on, and ends with its last user.
        drop(program.stdin.take());
        program.wait().unwrap();
        mounted.wait();
    }
}

#[test]
fn busy_names_the_users_of_a_mount() {
    let mounted = Mounted::new();
    mounted.shell("touch f; mkdir d; cp $(command -v sleep) s");
    let refusal = |user: &mut Command, words: &str| {
        let mut user = user.stdout(Stdio::piped()).spawn().unwrap();
        let expected = format!("process {} ({words}", user.id());
        wait_until("it is named", || {
            let (succeeds, said) = umount(&mounted.path());
            assert!(!succeeds);
            said.contains(&expected) && said.contains("Device or resource busy")
        });
        user.kill().unwrap();
        user.wait().unwrap();
    };
    refusal(
        Command::new("sleep").arg("600").current_dir(mounted.join("d")),
        "sleep) is in a directory of it",
    );
    let open = format!("sleep) has {} open", mounted.join("f").display());
    refusal(
        Command::new("sleep").arg("600").stdin(fs::File::open(mounted.join("f")).unwrap()),
        &open,
    );
    let mapped = format!("s) has {} mapped", mounted.join("s").display());
    refusal(Command::new(mounted.join("s")).arg("600"), &mapped);
    rustix::mount::mount_bind(mounted.folder(), mounted.join("d")).unwrap();
    let (succeeds, said) = umount(&mounted.path());
    let inside = format!("{} is mounted in it", mounted.join("d").display());
    rustix::mount::unmount(mounted.join("d"), UnmountFlags::empty()).unwrap();
    assert!(!succeeds && said.contains(&inside), "{said}");
    shell(mounted.folder(), "rm mnt/s");
    mounted.finish();
}

#[test]
fn a_mount_is_unmounted_from_inside() {
    let mut mounted = Mounted::new();
    mounted.shell("mkdir d");
    let program = env!("CARGO_BIN_EXE_larder");
    for line in ["cd mnt && exec \"$1\" umount .", "cd mnt/d && exec \"$1\" umount ../../mnt"] {
        let mut command = Command::new("sh");
        command.args(["-c", line, "sh", program]).current_dir(mounted.folder());
        succeed(&mut command);
        mounted.mount(&[]);
    }
    mounted.finish();
}
