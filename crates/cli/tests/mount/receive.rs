//! Streams received into a directory of a mount of larder.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::slice::from_ref;

use larder_format::Uuid;
use larder_stream::{Command, Version, Writer};
use larder_testkit::command::run;
use larder_testkit::snapshots::{Random, mutate, sendable};
use larder_testkit::{KernelMount, Manifest, Scratch, assert_same};
use rustix::io::Errno;

use crate::support::{Mounted, larder, succeed, wait_until};

/// Snapshots in a chain.
const SNAPSHOTS: usize = 6;

/// Streams of a chain of snapshots, made by the kernel: the first complete, the others as
/// increments.
struct Chain {
    scratch: Scratch,
    manifests: Vec<Manifest>,
}

impl Chain {
    fn new(seed: u64) -> Self {
        let scratch = Scratch::new();
        let image = scratch.sparse_file("origin", 512 << 20);
        run("mkfs.btrfs", ["-q".as_ref(), image.as_os_str()]).unwrap();
        let mut random = Random(seed);
        let mut manifests = Vec::new();
        for round in 0..SNAPSHOTS {
            let mount = KernelMount::open(from_ref(&image), "noatime");
            let [work, target] =
                ["work".to_owned(), round.to_string()].map(|n| mount.path().join(n));
            if round == 0 {
                run("btrfs", ["-q", "subvolume", "create"].map(Path::new).iter().chain([&&*work]))
                    .unwrap();
            }
            mutate(&work, &mut random, if round == 0 { 120 } else { 40 });
            let words = ["-q", "subvolume", "snapshot", "-r"].map(Path::new);
            run("btrfs", words.iter().chain([&&*work, &&*target])).unwrap();
            manifests.push(sendable(&target));
        }
        let chain = Self { scratch, manifests };
        for round in 0..SNAPSHOTS {
            let name = |round: usize| format!("origin:/{round}");
            let mut command = larder();
            command.args(["send", "--proto", "2", "-f"]).arg(chain.stream(round));
            if round > 0 {
                command.arg("-p").arg(name(round - 1));
            }
            succeed(command.arg(name(round)).current_dir(chain.scratch.path()));
        }
        chain
    }

    fn stream(&self, round: usize) -> PathBuf {
        self.scratch.path().join(format!("{round}.stream"))
    }

    /// The received subvolumes in `directory` are those that were sent.
    #[track_caller]
    fn assert_received(&self, directory: &Path) {
        for (round, manifest) in self.manifests.iter().enumerate() {
            assert_same(manifest, &sendable(&directory.join(round.to_string())));
        }
    }
}

#[track_caller]
fn receive(stream: &Path, directory: &Path) -> String {
    let output = try_receive(stream, directory, &[]);
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

fn try_receive(stream: &Path, directory: &Path, options: &[&str]) -> Output {
    let mut command = larder();
    command.arg("receive").args(options).arg("-f").arg(stream).arg(directory).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stream_of(commands: &[Command<'_>], path: &Path) {
    let mut stream = Writer::new(File::create(path).unwrap(), Version::V2).unwrap();
    let uuid = Uuid::new_v4();
    let begin = Command::Subvol { path: b"received", uuid, ctransid: 7 };
    for command in [begin].iter().chain(commands).chain([&Command::End]) {
        stream.write(command).unwrap();
    }
}

#[test]
fn chains_are_received_as_they_were() {
    for seed in 1..=3 {
        let chain = Chain::new(seed);
        let mut mounted = Mounted::new();
        fs::create_dir(mounted.join("backup")).unwrap();
        // The kernel caches that none of them exists.
        let look = |round: usize| mounted.join(format!("backup/{round}")).symlink_metadata();
        assert!((0..SNAPSHOTS).all(|round| look(round).is_err()));
        for round in 0..SNAPSHOTS {
            let said = receive(&chain.stream(round), &mounted.join("backup"));
            let kind = if round == 0 { "subvol" } else { "snapshot" };
            assert_eq!(said, format!("At {kind} {round}\n"));
        }
        let shown = |round: usize| Manifest::of_tree(&mounted.join(format!("backup/{round}")));
        assert!((0..SNAPSHOTS).all(|round| !shown(round).entries.is_empty()));
        let error = fs::write(mounted.join("backup/0/n"), "").unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
        // A received snapshot can be sent on.
        let again = mounted.folder().join("again");
        let paths = ["backup/1", "backup/2"].map(|path| mounted.join(path));
        succeed(larder().args(["send", "-p"]).arg(&paths[0]).arg("-f").arg(&again).arg(&paths[1]));
        fs::create_dir(mounted.join("second")).unwrap();
        receive(&again, &mounted.join("second"));
        mounted.unmount();
        mounted.check();
        let kernel = KernelMount::open(from_ref(&mounted.image()), "ro,noatime");
        chain.assert_received(&kernel.path().join("backup"));
        assert_same(&chain.manifests[2], &sendable(&kernel.path().join("second/2")));
    }
}

/// During a receive nobody can look into the subvolume; afterwards everybody can, whatever the
/// kernel cached.
#[test]
fn unfinished_subvolumes_are_not_shown() {
    let chain = Chain::new(9);
    let mounted = Mounted::new();
    let stream = fs::read(chain.stream(0)).unwrap();
    let mut command = larder();
    command.arg("receive").arg(mounted.path()).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&stream[..stream.len() / 2]).unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0; "At subvol 0\n".len()]).unwrap();
    let inside = mounted.join("0");
    let is_hidden = || {
        let opened = fs::read_dir(&inside).map(drop);
        opened.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY))
    };
    let names = || fs::read_dir(mounted.path()).unwrap().count();
    assert!(is_hidden());
    names();
    mounted.shell("echo other > other; sync -f .");
    assert!(is_hidden());
    input.write_all(&stream[stream.len() / 2..]).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(fs::read_dir(&inside).unwrap().count() > 0);
    assert_eq!(names(), 2);
    mounted.finish();
}

#[test]
fn trees_with_a_subvolume_that_is_being_received_are_not_removed() {
    let chain = Chain::new(9);
    let mounted = Mounted::new();
    mounted.shell("mkdir -p in/to; echo x > in/file");
    let stream = fs::read(chain.stream(0)).unwrap();
    let mut command = larder();
    command.arg("receive").arg(mounted.join("in/to"));
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&stream[..stream.len() / 2]).unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0; "At subvol 0\n".len()]).unwrap();
    let output = larder().args(["rm", "-r"]).arg(mounted.join("in")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("in/to/0: Device or resource busy"), "{}", errors(&output));
    input.write_all(&stream[stream.len() / 2..]).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success(), "nothing of it was removed");
    assert_eq!(mounted.shell("find in -maxdepth 2 | sort"), "in\nin/to\nin/to/0\n");
    mounted.finish();
}

#[test]
fn a_stream_cut_short_says_how_to_go_on() {
    let chain = Chain::new(5);
    let mounted = Mounted::new();
    let stream = fs::read(chain.stream(0)).unwrap();
    let cut = mounted.folder().join("cut");
    fs::write(&cut, &stream[..stream.len() / 2]).unwrap();
    let output = try_receive(&cut, &mounted.path(), &[]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("it ends before the stream does"), "{said}");
    assert!(said.contains("The subvolume 0 is unfinished"), "{said}");
    fs::write(mounted.join("0/n"), "it can be changed").unwrap();
    let last = said.lines().last().unwrap().trim();
    let words: Vec<&str> = last.split(' ').collect();
    assert_eq!(words[..3], ["larder", "subvolume", "delete"]);
    succeed(larder().args(&words[1..]));
    receive(&chain.stream(0), &mounted.path());
    mounted.finish();
}

/// A client that dies leaves the same as a truncated stream.
#[test]
fn a_command_that_dies_leaves_an_unfinished_subvolume() {
    let chain = Chain::new(6);
    let mut mounted = Mounted::new();
    let stream = fs::read(chain.stream(0)).unwrap();
    let mut command = larder();
    command.arg("receive").arg(mounted.path()).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&stream[..stream.len() / 2]).unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0; 9]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("it can be opened", || fs::read_dir(mounted.join("0")).is_ok());
    mounted.unmount();
    mounted.check();
    let kernel = KernelMount::open(from_ref(&mounted.image()), "ro,noatime");
    let words = ["subvolume", "show"].map(Path::new);
    let shown = run("btrfs", words.iter().chain([&&*kernel.path().join("0")])).unwrap();
    let field = |name: &str| shown.lines().any(|line| line.trim().replace('\t', "") == name);
    assert!(field("Received UUID: -") && field("Flags: -"), "{shown}");
}

#[test]
fn failed_commands_are_skipped_on_demand() {
    let mounted = Mounted::new();
    let stream = mounted.folder().join("stream");
    let commands = [
        Command::Unlink { path: b"nothing" },
        Command::Mkfile { path: b"../outside", ino: 257 },
        Command::Mkfile { path: b"inside", ino: 258 },
        Command::Symlink { path: b"up", ino: 259, target: b".." },
        Command::Mkfile { path: b"up/outside", ino: 260 },
        Command::Write { path: b"inside", offset: u64::MAX - 1, data: b"xx" },
        Command::Truncate { path: b"inside", size: u64::MAX },
    ];
    stream_of(&commands, &stream);
    let output = try_receive(&stream, &mounted.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    assert!(said.contains("ERROR: unlink nothing: No such file or directory"), "{said}");
    assert!(!said.contains("outside"), "{said}");
    succeed(larder().args(["subvolume", "delete"]).arg(mounted.join("received")));
    let output = try_receive(&stream, &mounted.path(), &["--max-errors", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    assert!(
        said.contains("mkfile ../outside: the path ../outside: it does not lead down"),
        "{said}"
    );
    assert!(said.contains("ERROR: 5 commands could not be applied"), "{said}");
    assert!(said.contains("The subvolume received is unfinished"), "{said}");
    let names = |path: &str| fs::read_dir(mounted.join(path)).unwrap().count();
    assert_eq!((names("."), names("received")), (1, 2));
    mounted.finish();
}

#[test]
fn invalid_names_and_missing_subvolumes_are_refused() {
    let chain = Chain::new(7);
    let mounted = Mounted::new();
    let output = try_receive(&chain.stream(1), &mounted.path(), &[]);
    assert!(errors(&output).contains("receive that one first"), "{}", errors(&output));
    receive(&chain.stream(0), &mounted.path());
    let output = try_receive(&chain.stream(0), &mounted.path(), &[]);
    assert!(errors(&output).contains("File exists"));
    let stream = mounted.folder().join("stream");
    for path in [&b"../x"[..], b"/x", b"..", b""] {
        let mut writer = Writer::new(File::create(&stream).unwrap(), Version::V1).unwrap();
        writer.write(&Command::Subvol { path, uuid: Uuid::new_v4(), ctransid: 7 }).unwrap();
        let output = try_receive(&stream, &mounted.path(), &[]);
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    }
    fs::write(&stream, b"this is no stream").unwrap();
    let output = try_receive(&stream, &mounted.path(), &[]);
    assert!(errors(&output).contains("this is not a btrfs stream"), "{}", errors(&output));
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 1);
    mounted.finish();
}

/// With `-e` it ends where the first stream ends, though the input does not.
#[test]
fn it_stops_at_the_end_of_a_stream() {
    let chain = Chain::new(8);
    let mounted = Mounted::new();
    let mut command = larder();
    command.args(["receive", "-e"]).arg(mounted.path()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&fs::read(chain.stream(0)).unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    drop(input);
    assert!(fs::read_dir(mounted.join("0")).is_ok());
    mounted.finish();
}

#[test]
fn the_place_of_the_mount_may_be_given_and_must_be_right() {
    let chain = Chain::new(9);
    let mounted = Mounted::new();
    let (stream, point) = (chain.stream(0), mounted.path().display().to_string());
    fs::create_dir(mounted.join("backup")).unwrap();
    for (place, reason) in [
        ("/", "/: Inappropriate ioctl for device"),
        ("/nonexistent", "/nonexistent: No such file or directory"),
        (&*format!("{point}/backup"), "is not below"),
    ] {
        let output = try_receive(&stream, &mounted.path(), &["-m", place]);
        assert_eq!(output.status.code(), Some(1), "{place}");
        assert!(errors(&output).contains(reason), "{place}: {}", errors(&output));
    }
    let output = try_receive(&stream, &mounted.join("backup"), &["-C", "-m", &point]);
    assert!(output.status.success(), "{}", errors(&output));
    let output = try_receive(&stream, &mounted.image(), &["-m", &point]);
    assert!(errors(&output).contains("-m is for what is mounted"), "{}", errors(&output));
    mounted.finish();
}

/// What is told of the commands of a chain of streams, as it is received into `directory`.
fn told(program: &str, options: &[&str], chain: &Chain, directory: &Path) -> Vec<String> {
    let mut told = Vec::new();
    for round in 0..SNAPSHOTS {
        let mut command = std::process::Command::new(program);
        command.args(options).arg("-f").arg(chain.stream(round)).arg(directory);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", errors(&output));
        // Which of the streams has these lines depends on the kind of subvolume.
        let is_told = |line: &&str| !line.starts_with("At s") && !line.is_empty();
        // Larder escapes the control characters in values.
        let name = |line: &str| line.split(" data=").next().unwrap_or_default().to_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        told.extend(said.split('\n').filter(is_told).map(name));
    }
    told
}

#[test]
fn commands_are_told_as_btrfs_receive_tells_them() {
    let chain = Chain::new(5);
    let theirs = |options: &[&str]| {
        let image = chain.scratch.sparse_file("theirs", 512 << 20);
        run("mkfs.btrfs", ["-qf".as_ref(), image.as_os_str()]).unwrap();
        let mount = KernelMount::open(from_ref(&image), "");
        told("btrfs", options, &chain, mount.path())
    };
    let ours = |options: &[&str]| {
        let mounted = Mounted::new();
        let told = told(env!("CARGO_BIN_EXE_larder"), options, &chain, &mounted.path());
        chain.assert_received(&mounted.path());
        told
    };
    for options in [&["receive", "-v"][..], &["receive", "-v", "-v"], &["-v", "receive", "-v"]] {
        let (theirs, ours) = (theirs(options), ours(options));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{options:?}");
        }
        assert_eq!(ours.len(), theirs.len(), "{options:?}");
        assert!(ours.len() > SNAPSHOTS, "{options:?}");
    }
    assert_eq!(ours(&["receive", "-q", "-v"]), Vec::<String>::new());
}
