//! `larder receive` as a user runs it.
//!
//! Needs root, loop devices and btrfs in the kernel.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::slice::from_ref;

use larder_format::Uuid;
use larder_stream::{Version, Writer};
use larder_testkit::command::run;
use larder_testkit::{KernelMount, Scratch, oracle};

/// A file system with the read-only snapshots `one` and `two`, and an empty one to receive in.
struct Images {
    scratch: Scratch,
    origin: PathBuf,
    target: PathBuf,
}

impl Images {
    fn new() -> Self {
        let scratch = Scratch::new();
        let [origin, target] = ["origin", "target"].map(|name| {
            let path = scratch.sparse_file(name, 512 << 20);
            run("mkfs.btrfs", ["-q".as_ref(), path.as_os_str()]).expect("made");
            path
        });
        let images = Self { scratch, origin, target };
        let mount = KernelMount::open(from_ref(&images.origin), "noatime");
        let work = mount.path().join("work");
        btrfs(&["-q".as_ref(), "subvolume".as_ref(), "create".as_ref(), work.as_os_str()]);
        for number in 0..3000 {
            fs::write(work.join(format!("file{number}")), number.to_string()).expect("written");
        }
        fs::write(work.join("large"), vec![7; 9_000_000]).expect("written");
        snapshot(&mount, "one");
        fs::rename(work.join("file1"), work.join("renamed")).expect("renamed");
        snapshot(&mount, "two");
        drop(mount);
        images
    }

    /// The stream of a snapshot, in a file.
    fn stream(&self, name: &str, parent: Option<&str>) -> PathBuf {
        let stream = self.scratch.path().join(format!("{name}.stream"));
        let origin = |name: &str| format!("{}:/{name}", self.origin.display());
        let mut command = larder(["send", "-f"]);
        command.arg(&stream).arg(origin(name));
        if let Some(parent) = parent {
            command.arg("-p").arg(origin(parent));
        }
        succeed(&mut command);
        stream
    }

    fn target(&self) -> String {
        format!("{}:/", self.target.display())
    }

    /// Whether the kernel finds the same under a name on both sides.
    fn assert_received(&self, names: &[&str]) {
        oracle::check(from_ref(&self.target), true).unwrap_or_else(|error| panic!("{error}"));
        let mounts = [&self.origin, &self.target]
            .map(|image| KernelMount::open(from_ref(image), "ro,noatime"));
        for name in names {
            let [theirs, ours] = mounts.each_ref().map(|mount| mount.path().join(name));
            run("diff", ["-r".as_ref(), theirs.as_os_str(), ours.as_os_str()])
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

fn btrfs(arguments: &[&OsStr]) {
    run("btrfs", arguments.iter().copied()).unwrap_or_else(|error| panic!("{error}"));
}

fn snapshot(mount: &KernelMount, name: &str) {
    let [work, snapshot] = ["work", name].map(|name| mount.path().join(name));
    let command = ["subvolume", "snapshot", "-r"].map(OsStr::new);
    btrfs(&[&command[..], &[work.as_os_str(), snapshot.as_os_str()]].concat());
}

fn larder<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(arguments);
    command
}

/// What a command that must succeed writes to standard error.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("larder starts");
    let errors = errors(&output);
    assert!(output.status.success(), "{errors}");
    errors
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn snapshots_are_received_from_files_and_pipes() {
    let images = Images::new();
    let first = images.stream("one", None);
    let said = succeed(larder(["receive", "-f"]).arg(&first).arg(images.target()));
    assert_eq!(said, "At subvol one\n");
    let second = images.stream("two", Some("one"));
    let input = Stdio::from(File::open(&second).expect("it was sent"));
    let output = larder(["receive"]).arg(images.target()).stdin(input).output().expect("it starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", errors(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "At snapshot two\n");
    images.assert_received(&["one", "two"]);

    let output = larder(["receive", "-f"]).arg(&second).arg(images.target()).output();
    let output = output.expect("larder starts");
    assert!(errors(&output).ends_with("File exists\n"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn snapshots_are_received_through_a_mount() {
    let images = Images::new();
    let streams = [images.stream("one", None), images.stream("two", Some("one"))];
    {
        let mount = KernelMount::open(from_ref(&images.target), "noatime");
        for stream in &streams {
            succeed(larder(["receive", "-q", "-f"]).arg(stream).arg(mount.path()));
        }
        let output = larder(["receive", "-q", "-f"]).arg(&streams[0]).arg(mount.path()).output();
        assert!(errors(&output.expect("larder starts")).starts_with("ERROR: subvol one: "));
    }
    images.assert_received(&["one", "two"]);
    let nowhere = images.scratch.path();
    let output = larder(["receive", "-f"]).arg(&streams[0]).arg(nowhere).output();
    let said = errors(&output.expect("larder starts"));
    assert!(said.contains("ERROR: subvol one: "), "{said}");
}

#[test]
fn an_increment_names_its_missing_parent() {
    let images = Images::new();
    let second = images.stream("two", Some("one"));
    let output = larder(["receive", "-q", "-f"]).arg(&second).arg(images.target()).output();
    let output = output.expect("larder starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("receive that one first"), "{}", errors(&output));
    oracle::check(from_ref(&images.target), true).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_stream_cut_short_says_how_to_go_on() {
    let images = Images::new();
    let stream = fs::read(images.stream("one", None)).expect("it was sent");
    let cut = images.scratch.path().join("cut");
    fs::write(&cut, &stream[..stream.len() / 2]).expect("written");
    let output = larder(["receive", "-f"]).arg(&cut).arg(images.target()).output();
    assert_unfinished(&images, &output.expect("larder starts"));
}

#[test]
fn ctrl_c_says_how_to_go_on() {
    let images = Images::new();
    let stream = fs::read(images.stream("one", None)).expect("it was sent");
    let mut child = larder(["receive"])
        .arg(images.target())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("larder starts");
    let mut input = child.stdin.take().expect("a pipe");
    // More than is read at once, and less than there is.
    input.write_all(&stream[..2 << 20]).expect("it is read");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    assert_eq!(line, "At subvol one\n");
    interrupt(&child);
    // It ends at its own pace, and need not take all of this.
    let _ = input.write_all(&stream[2 << 20..]);
    drop::<ChildStdin>(input);
    let mut stderr = Vec::new();
    std::io::Read::read_to_end(&mut said, &mut stderr).expect("text");
    let status = child.wait().expect("it ends");
    assert!(String::from_utf8_lossy(&stderr).contains("stopped at byte"));
    assert_unfinished(&images, &Output { status, stdout: Vec::new(), stderr });
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
}

/// The rest of `one` is recognizably incomplete, and the message shows a way on.
#[track_caller]
fn assert_unfinished(images: &Images, output: &Output) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("The subvolume one is unfinished"), "{said}");
    {
        let mount = KernelMount::open(from_ref(&images.target), "ro,noatime");
        let shown = run(
            "btrfs",
            ["subvolume", "show"].iter().map(Path::new).chain([&*mount.path().join("one")]),
        );
        let shown = shown.unwrap_or_else(|error| panic!("{error}"));
        let field = |name: &str| shown.lines().any(|line| line.trim().replace('\t', "") == name);
        assert!(field("Received UUID: -") && field("Flags: -"), "{shown}");
    }
    let last = said.lines().last().expect("it says something").trim();
    let mut words = last.split(' ').skip(1);
    succeed(&mut larder(&mut words));
    let stream = images.stream("one", None);
    succeed(larder(["receive", "-f"]).arg(stream).arg(images.target()));
    images.assert_received(&["one"]);
}

#[test]
fn failed_commands_are_skipped_on_demand_and_never_finish() {
    let images = Images::new();
    let path = images.scratch.path().join("stream");
    let file = File::create(&path).expect("made");
    let mut stream = Writer::new(file, Version::V1).expect("written");
    let uuid = Uuid::new_v4();
    for command in [
        larder_stream::Command::Subvol { path: b"odd", uuid, ctransid: 7 },
        larder_stream::Command::Unlink { path: b"nothing" },
        larder_stream::Command::Mkfile { path: b"../outside", ino: 257 },
        larder_stream::Command::Mkfile { path: b"inside", ino: 258 },
        larder_stream::Command::End,
    ] {
        stream.write(&command).expect("written");
    }
    let receive = |most: &str| {
        let mut command = larder(["receive", "-C", "--max-errors", most, "-f"]);
        command.arg(&path).arg(images.target()).output().expect("larder starts")
    };
    let output = receive("1");
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    assert!(said.contains("ERROR: unlink nothing: No such file or directory"), "{said}");
    assert!(!said.contains("outside"), "{said}");
    succeed(larder(["subvolume", "delete"]).arg(format!("{}odd", images.target())));
    let output = receive("0");
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    assert!(
        said.contains("mkfile ../outside: the path ../outside: it does not lead down"),
        "{said}"
    );
    assert!(said.contains("ERROR: 2 commands could not be applied"), "{said}");
    assert!(said.contains("The subvolume odd is unfinished"), "{said}");
    let listed = larder(["ls"]).arg(format!("{}odd", images.target())).output();
    assert_eq!(listed.expect("larder starts").stdout, b"inside\n");
}

#[test]
fn a_stream_is_shown_and_nothing_is_changed() {
    let images = Images::new();
    let stream = images.stream("two", Some("one"));
    let output = larder(["receive", "--dump", "-f"]).arg(&stream).output().expect("larder starts");
    let dump = String::from_utf8(output.stdout).expect("text");
    assert!(dump.starts_with("snapshot        ./two"), "{dump}");
    let theirs =
        run("btrfs", ["receive".as_ref(), "--dump".as_ref(), "-f".as_ref(), stream.as_os_str()]);
    assert_eq!(dump, theirs.unwrap_or_else(|error| panic!("{error}")));
}

#[test]
fn a_receive_says_what_btrfs_says_and_where() {
    let images = Images::new();
    let streams = [images.stream("one", None), images.stream("two", Some("one"))];
    let theirs = images.scratch.sparse_file("theirs", 512 << 20);
    run("mkfs.btrfs", ["-q".as_ref(), theirs.as_os_str()]).expect("made");
    let mount = KernelMount::open(from_ref(&theirs), "noatime");
    for stream in streams {
        let mut btrfs = Command::new("btrfs");
        let expected = btrfs.args(["receive", "-f"]).arg(&stream).arg(mount.path()).output();
        let expected = expected.expect("btrfs starts");
        let found = larder(["receive", "-f"]).arg(&stream).arg(images.target()).output();
        let found = found.expect("larder starts");
        assert!(expected.status.success() && found.status.success(), "{expected:?} {found:?}");
        assert_eq!((found.stdout, found.stderr), (expected.stdout, expected.stderr));
    }
    // What needs version 2 of the stream implies it.
    let stream = images.scratch.path().join("compressed");
    let snapshot = format!("{}:/one", images.origin.display());
    succeed(larder(["send", "--compressed-data", "-f"]).arg(&stream).arg(snapshot));
    let header = fs::read(stream).expect("it was sent");
    assert_eq!(header[13..17], 2_u32.to_le_bytes());
}
