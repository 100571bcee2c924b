//! Snapshots sent by their paths: from a mount of larder while it is in use, and from the kernel's.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::slice::from_ref;

use larder::{MountedSnapshot, SendOptions, SendProgress, StreamVersion};
use larder_ioctl::channel::{Channel, Kind, Request, SendRequest, frame};
use larder_testkit::command::run;
use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount};
use rustix::io::Errno;

use crate::support::{Mounted, as_nobody, larder, larder_in, succeed, wait_until};

/// A mount with the read-only snapshots `one`, `two` and `three` of a subvolume `work`.
fn with_snapshots() -> Mounted {
    let mounted = Mounted::new();
    subvolume(&mounted, &["create", "work"]);
    mounted.shell(
        "cd work; seq 1 400000 > large; mkdir packed; chattr +c packed; seq 100000 > packed/text; mkdir -p a/b; for n in $(seq 300); do echo $n > a/$n; done
         ln a/7 a/b/seven; ln -s ../a/8 a/b/eight; setfattr -n user.x -v y a/9",
    );
    subvolume(&mounted, &["snapshot", "-r", "work", "one"]);
    mounted.shell("cd work; mv a/b c; rm a/1; echo more >> large; cp --reflink=auto large other");
    subvolume(&mounted, &["snapshot", "-r", "work", "two"]);
    mounted.shell("cd work; truncate -s 1000 large; chmod 600 a/3");
    subvolume(&mounted, &["snapshot", "-r", "work", "three"]);
    mounted
}

fn subvolume(mounted: &Mounted, arguments: &[&str]) -> String {
    succeed(larder().arg("subvolume").args(arguments).current_dir(mounted.path()))
}

/// The output of `larder send` with these arguments, in `directory`.
#[track_caller]
fn sent(arguments: &[&str], directory: &Path) -> Vec<u8> {
    let output = larder().arg("send").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    output.stdout
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The message of `larder send` when it fails, in `directory`.
#[track_caller]
fn refused(arguments: &[&str], directory: &Path) -> String {
    let output = larder().arg("send").args(arguments).current_dir(directory).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    errors(&output)
}

/// Options before the snapshots.
const WAYS: [&[&str]; 8] = [
    &["one"],
    &["-p", "one", "two"],
    &["-p", "one", "-c", "three", "two"],
    &["-e", "-p", "one", "two", "three"],
    &["-p", "one", "two", "three"],
    &["--proto", "2", "-p", "two", "three"],
    &["--proto", "0", "--compressed-data", "two"],
    &["--no-data", "-p", "one", "two"],
];

/// The one that sends compressed data as it is stored.
const PACKED: usize = 6;

#[test]
fn a_mount_in_use_is_sent_as_from_its_image() {
    let mut mounted = with_snapshots();
    let streams = WAYS.map(|way| sent(way, &mounted.path()));
    let path = mounted.folder().join("stream");
    fs::write(&path, &streams[PACKED]).unwrap();
    let dump = succeed(larder().args(["receive", "--dump", "-f"]).arg(&path));
    assert!(dump.lines().any(|line| line.starts_with("encoded_write ")), "{dump}");
    succeed(larder().args(["send", "-f"]).arg(&path).arg(mounted.join("two")));
    // Later changes are not in it.
    fs::write(mounted.join("work/since"), "x").unwrap();
    assert_eq!(sent(WAYS[0], &mounted.path()), streams[0]);
    mounted.unmount();
    let in_image = |name: &str| format!("disk.img:/{name}");
    for (way, stream) in WAYS.iter().zip(&streams) {
        let named = way.iter().map(|word| match *word {
            "one" | "two" | "three" => in_image(word),
            option => option.to_owned(),
        });
        let named: Vec<String> = named.collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        assert!(sent(&named, mounted.folder()) == *stream, "{way:?}");
    }
    assert!(sent(&["disk.img:/two"], mounted.folder()) == fs::read(path).unwrap());
    mounted.check();
}

#[test]
fn the_kernel_is_asked_where_it_has_mounted() {
    let image = KernelImage::build(&ImageSpec::new("send").devices(&[512 << 20]), &Content::new(3));
    let mount = image.mount("noatime");
    let snapshot = |name: &str| {
        let words = ["subvolume", "snapshot", "-r", ".", name].map(OsStr::new);
        succeed(Command::new("btrfs").args(words).current_dir(mount.path()));
    };
    snapshot("one");
    fs::rename(mount.path().join("data"), mount.path().join("moved")).unwrap();
    snapshot("two");
    fs::write(mount.path().join("moved/new"), vec![7; 300_000]).unwrap();
    snapshot("three");
    for way in WAYS {
        let theirs = Command::new("btrfs")
            .args(["send", "-q"])
            .args(way)
            .current_dir(mount.path())
            .output()
            .unwrap();
        assert!(theirs.status.success(), "{}", errors(&theirs));
        assert!(sent(way, mount.path()) == theirs.stdout, "{way:?}");
    }
}

/// An output that records the progress of the send with each write.
struct Noting<'a> {
    progress: &'a SendProgress,
    seen: Vec<u32>,
}

impl Write for Noting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.seen.push(self.progress.millionths());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn how_far_the_kernel_has_come_is_told() {
    let image = KernelImage::build(&ImageSpec::new("send").devices(&[512 << 20]), &Content::new(4));
    let mount = image.mount("noatime");
    // After all others, and most of the stream.
    fs::write(mount.path().join("large"), vec![1; 40 << 20]).unwrap();
    let words = ["subvolume", "snapshot", "-r", ".", "all"];
    succeed(Command::new("btrfs").args(words).current_dir(mount.path()));
    let snapshot = MountedSnapshot::open(mount.path().join("all")).unwrap();
    for version in [StreamVersion::V1, StreamVersion::V2] {
        let options = SendOptions { version, ..SendOptions::default() };
        let mut noting = Noting { progress: &options.progress, seen: Vec::new() };
        snapshot.send(&options, &mut noting).unwrap();
        let seen = noting.seen;
        assert!(seen.is_sorted(), "{seen:?}");
        let (first, last) = (seen[0], seen[seen.len() - 1]);
        assert!(first < 900_000 && last > 990_000, "{seen:?}");
    }
}

#[test]
fn snapshots_that_cannot_be_sent_are_refused_in_the_same_words() {
    let mut mounted = with_snapshots();
    let cases: [(&[&str], &str); 4] = [
        (&["work"], "is not read-only"),
        (&["-p", "work", "one"], "is not read-only"),
        (&["nothing"], "nothing: "),
        (
            &["--proto", "1", "--compressed-data", "one"],
            "--compressed-data requires protocol version >= 2 (requested 1)",
        ),
    ];
    for (arguments, text) in cases {
        let said = refused(arguments, &mounted.path());
        assert!(said.contains(text), "{said}");
    }
    let said = refused(&["work/a"], &mounted.path());
    assert!(said.contains("work/a: not a subvolume"), "{said}");
    let said = refused(&["-p", "/", "one"], &mounted.path());
    assert!(said.contains("/: not in a mounted btrfs"), "{said}");
    let other = with_snapshots();
    let elsewhere = other.join("one");
    let said = refused(&["-p", elsewhere.to_str().unwrap(), "two"], &mounted.path());
    assert!(said.contains("not of the same file system as two"), "{said}");
    mounted.unmount();
    let kernel = KernelMount::open(from_ref(&mounted.image()), "noatime");
    for (arguments, text) in cases {
        let said = refused(arguments, kernel.path());
        assert!(said.contains(text), "{said}");
    }
    let said = refused(&["work/a"], kernel.path());
    assert!(said.contains("work/a: not a subvolume"), "{said}");
}

#[test]
fn what_a_send_tells_is_chosen_as_with_btrfs() {
    let mut mounted = with_snapshots();
    mounted.unmount();
    let kernel = KernelMount::open(from_ref(&mounted.image()), "noatime");
    let told = |mut program: Command, words: &str| {
        program.args(words.split(' ')).current_dir(kernel.path());
        let output = program.stdout(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{words}: {}", errors(&output));
        errors(&output)
    };
    for words in ["send one", "send -q one", "send --quiet one", "-q send one"] {
        assert_eq!(told(larder(), words), told(Command::new("btrfs"), words), "{words}");
    }
    for words in ["send -v one", "send -v --proto 2 one"] {
        let (ours, theirs) = (told(larder(), words), told(Command::new("btrfs"), words));
        let first = |text: &str| text.lines().take(2).collect::<Vec<_>>().join("\n");
        assert_eq!(first(&ours), first(&theirs), "{words}");
        let bytes = sent(&words.split(' ').skip(1).collect::<Vec<_>>(), kernel.path()).len();
        assert!(ours.contains(&format!("one: {bytes} bytes were sent")), "{ours}");
    }
    assert!(told(larder(), "-v send one").starts_with("Protocol version requested: 1 "));
    assert_eq!(told(larder(), "-v send -q one"), "");
}

/// A send that waits for its reader.
struct Slow {
    child: std::process::Child,
}

impl Slow {
    fn start(mounted: &Mounted, snapshot: &str) -> Self {
        let mut command = larder();
        command.arg("send").arg(mounted.join(snapshot));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut slow = Self { child };
        // It has begun.
        slow.child.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
        slow
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn others_go_on_while_it_is_sent() {
    let mounted = with_snapshots();
    fs::write(mounted.join("work/huge"), vec![1; 40 << 20]).unwrap();
    subvolume(&mounted, &["snapshot", "-r", "work", "huge"]);
    let slow = Slow::start(&mounted, "huge");
    mounted.shell("echo new > work/new; sync -f .; cat work/new huge/huge > /dev/null");
    subvolume(&mounted, &["snapshot", "-r", "work", "meanwhile"]);
    subvolume(&mounted, &["delete", "meanwhile"]);
    // A snapshot that is being sent stays; the file system does, too.
    let delete = || {
        larder().args(["subvolume", "delete"]).arg(mounted.join("huge")).output().unwrap().status
    };
    assert!(!delete().success());
    let in_use = rustix::mount::unmount(mounted.path(), rustix::mount::UnmountFlags::empty());
    assert_eq!(in_use, Err(Errno::BUSY));
    // A command that dies ends its send.
    drop(slow);
    wait_until("it can be deleted", || delete().success());
    assert!(!sent(&["one"], &mounted.path()).is_empty());
    mounted.finish();
}

#[test]
fn a_reader_that_goes_ends_it() {
    let mounted = with_snapshots();
    fs::write(mounted.join("work/huge"), vec![1; 40 << 20]).unwrap();
    subvolume(&mounted, &["snapshot", "-r", "work", "huge"]);
    mounted.shell(&format!(
        "({} send huge 2>&3 || test $? = 1) 3>said | head -c 100000 > /dev/null",
        env!("CARGO_BIN_EXE_larder")
    ));
    let said = fs::read_to_string(mounted.join("said")).unwrap();
    assert!(said.contains("the reader has closed the stream before its end"), "{said}");
    let path = mounted.join("huge");
    let mut delete = larder();
    delete.args(["subvolume", "delete"]).arg(path);
    wait_until("it can be deleted", || delete.output().unwrap().status.success());
    mounted.finish();
}

#[test]
fn a_server_that_goes_is_noticed() {
    let mut mounted = Mounted::in_foreground();
    subvolume(&mounted, &["create", "work"]);
    fs::write(mounted.join("work/huge"), vec![1; 40 << 20]).unwrap();
    subvolume(&mounted, &["snapshot", "-r", "work", "huge"]);
    let mut command = larder();
    command.arg("send").arg(mounted.join("huge")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
    mounted.kill();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("ERROR: "), "{}", errors(&output));
    mounted.check();
}

#[test]
fn only_root_and_the_mounting_user_may_ask() {
    use std::os::unix::fs::PermissionsExt;
    let mut mounted = Mounted::unmounted();
    fs::set_permissions(mounted.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    mounted.mount(&["-o", "allow_other", "--create", "1G"]);
    subvolume(&mounted, &["create", "work"]);
    subvolume(&mounted, &["snapshot", "-r", "work", "one"]);
    let program = larder_in(mounted.folder());
    let output = as_nobody(&program).arg("send").arg(mounted.join("one")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("only from root"), "{}", errors(&output));
    let mut receive = as_nobody(&program);
    receive.arg("receive").arg(mounted.path()).stdin(Stdio::null());
    let output = receive.output().unwrap();
    assert!(errors(&output).contains("only from root"), "{}", errors(&output));
    // Whatever the command is, its error names the operand once.
    let place = mounted.path();
    for words in [
        vec!["rm", "-r"],
        vec!["du"],
        vec!["tar"],
        vec!["chmod", "700"],
        vec!["check"],
        vec!["subvolume", "list"],
        vec!["subvolume", "get-default"],
    ] {
        let output = as_nobody(&program).args(&words).arg(&place).output().unwrap();
        let said = errors(&output);
        assert_eq!(said.matches(place.to_str().unwrap()).count(), 1, "{words:?}: {said}");
        assert!(!output.status.success(), "{words:?}: {said}");
    }
    assert!(!sent(&["one"], &mounted.path()).is_empty());
    fs::remove_file(&program).unwrap();
    mounted.finish();
}

fn channel(path: PathBuf) -> (Channel, larder_ioctl::channel::NodeId) {
    Channel::of(File::open(path).unwrap()).unwrap().expect("a mount of larder's")
}

/// Whether the server has closed this connection.
fn is_closed(mut socket: &UnixStream) -> bool {
    // Unread data is lost with the connection.
    let is_reset = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
    socket.read(&mut [0; 64]).map_or_else(is_reset, |len| len == 0)
}

#[test]
fn hostile_clients_do_no_harm() {
    let mounted = with_snapshots();
    let header = |kind: u32, len: u32| [kind.to_le_bytes(), len.to_le_bytes()].concat();
    for bytes in [
        vec![0; 8],
        vec![0xff; 64],
        header(77, 0),
        header(Kind::Send as u32, u32::MAX),
        header(Kind::Send as u32, 0),
        header(Kind::Data as u32, 0),
        [header(Kind::Receive as u32, 8), vec![0; 8]].concat(),
        [header(Kind::Send as u32, 32), vec![0xff; 32]].concat(),
    ] {
        let (channel, _) = channel(mounted.path());
        let mut socket = channel.socket();
        socket.write_all(&bytes).unwrap();
        assert!(is_closed(socket), "{bytes:?}");
    }
    // Well-formed requests without a meaning are answered.
    let (mut channel_, _) = channel(mounted.join("one"));
    let good = SendRequest { version: 1, ..SendRequest::default() };
    for bad in [
        SendRequest { version: 4, ..good.clone() },
        SendRequest { version: u64::MAX, ..good.clone() },
        SendRequest { parent: Some(3), ..good.clone() },
        SendRequest { clone_sources: vec![7; 4096], ..good.clone() },
    ] {
        let error = channel_.call(&Request::Send(bad), &mut |_, _| Ok(())).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
    channel_.call(&Request::Send(good.clone()), &mut |_, _| Ok(())).unwrap();
    for no_snapshot in ["", "work", "one/a"] {
        let (mut other, _) = channel(mounted.join(no_snapshot));
        let refused = other.call(&Request::Send(good.clone()), &mut |_, _| Ok(()));
        assert!(!refused.unwrap_err().to_string().is_empty());
    }
    // Many that say nothing, and one that is cut short.
    let idle: Vec<Channel> = (0..100).map(|_| channel(mounted.path()).0).collect();
    frame::write(idle[0].socket(), Kind::Send, &[0; 16]).unwrap();
    drop(idle);
    wait_until("there is room for others", || {
        let output = larder().arg("send").arg(mounted.join("one")).output().unwrap();
        output.status.success()
    });
    mounted.finish();
}

#[test]
fn the_kernel_receives_it_as_it_was() {
    let mounted = with_snapshots();
    let target = mounted.folder().join("target");
    File::create(&target).unwrap().set_len(512 << 20).unwrap();
    run("mkfs.btrfs", ["-q".as_ref(), target.as_os_str()]).unwrap();
    {
        let kernel = KernelMount::open(from_ref(&target), "noatime");
        let (program, target) = (env!("CARGO_BIN_EXE_larder"), kernel.path().display());
        // The parent of the others is the closest one that the receiver has.
        for snapshots in ["one", "-e -c one two three"] {
            mounted.shell(&format!("{program} send {snapshots} | btrfs receive -q {target}"));
        }
        for name in ["one", "two", "three"] {
            let [theirs, ours] = [kernel.path().join(name), mounted.join(name)];
            let options = ["-r", "--no-dereference"].map(OsStr::new);
            run("diff", options.into_iter().chain([theirs.as_os_str(), ours.as_os_str()])).unwrap();
        }
    }
    mounted.finish();
}

/// How many compressed extents a file system has that is not mounted.
fn compressed_extents(image: &Path) -> usize {
    let dump = succeed(larder().args(["inspect", "dump-tree"]).arg(image));
    let compression = dump.lines().filter_map(|line| line.split("extent compression ").nth(1));
    compression.filter(|kind| !kind.starts_with('0')).count()
}

#[test]
fn compressed_data_is_stored_uncompressed_on_demand() {
    // Files that ask for compression themselves would get it again.
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["-o", "compress=zstd", "--create", "1G"]);
    subvolume(&mounted, &["create", "work"]);
    mounted.shell("seq 100000 > work/text");
    subvolume(&mounted, &["snapshot", "-r", "work", "one"]);
    let stream = mounted.folder().join("stream");
    let words = ["--proto", "2", "--compressed-data", "one"];
    fs::write(&stream, sent(&words, &mounted.path())).unwrap();
    let text = succeed(Command::new("seq").arg("100000"));
    let receive = |option: Option<&str>, target: &OsStr| {
        let mut command = larder();
        succeed(command.args(["receive", "-q"]).args(option).arg("-f").arg(&stream).arg(target));
    };
    for option in [None, Some("--force-decompress")] {
        let stays_compressed = option.is_none();

        let mut ours = Mounted::new();
        receive(option, ours.path().as_os_str());
        assert_eq!(fs::read_to_string(ours.join("one/text")).unwrap(), text);
        ours.unmount();
        assert_eq!(compressed_extents(&ours.image()) > 0, stays_compressed, "{option:?}");

        let image = ours.folder().join("other.img");
        succeed(larder().args(["mkfs", "-q", "-b", "1G"]).arg(&image));
        receive(option, &OsString::from_iter([image.as_os_str(), OsStr::new(":/")]));
        assert_eq!(compressed_extents(&image) > 0, stays_compressed, "{option:?}");

        let image = ours.folder().join("kernel.img");
        succeed(larder().args(["mkfs", "-q", "-b", "1G"]).arg(&image));
        let kernel = KernelMount::open(from_ref(&image), "noatime");
        receive(option, kernel.path().as_os_str());
        assert_eq!(fs::read_to_string(kernel.path().join("one/text")).unwrap(), text);
        drop(kernel);
        assert_eq!(compressed_extents(&image) > 0, stays_compressed, "{option:?}");
    }
}
