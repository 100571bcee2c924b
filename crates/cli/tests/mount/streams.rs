//! Streams as objects: sent to a directory of objects, received into images and onto mounts, looked
//! after, and resumed after the worst moments.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::slice::from_ref;

use larder_testkit::manifest::{Manifest, assert_same};
use larder_testkit::{KernelMount, oracle};
use serde_json::Value;

use crate::support::{Mounted, comparable, larder, shell, succeed, wait_until};

/// A mount with the read-only snapshots `one`, `two` and `three` of a subvolume `work`, and a
/// directory for streams.
struct Sender {
    mounted: Mounted,
}

impl Sender {
    fn new() -> Self {
        let sender = Self { mounted: Mounted::new() };
        succeed(larder().args(["subvolume", "create"]).arg(sender.mounted.join("work")));
        sender.change_and_take(
            "seq 400000 >numbers; mkdir -p a/b; seq 99 >a/b/few
             ln -s numbers link; head -c 20M /dev/urandom >random",
            "one",
        );
        sender.change_and_take(
            "mv a/b c; cp random again; head -c 20M /dev/urandom >more; echo x >>numbers",
            "two",
        );
        sender.change_and_take(
            "rm again; truncate -s 1000 numbers; setfattr -n user.x -v y c",
            "three",
        );
        sender
    }

    /// Changes the files, and takes a snapshot.
    fn change_and_take(&self, change: &str, snapshot: &str) {
        let work = self.mounted.join("work");
        shell(&work, change);
        let mut command = larder();
        command.args(["subvolume", "snapshot", "-r"]).arg(&work).arg(self.mounted.join(snapshot));
        succeed(&mut command);
    }

    /// Begins to send a large snapshot, and ends the sender when so many parts are in the store.
    fn be_killed_sending_large(&self, parts: usize) {
        let mut send = larder();
        send.args(["send", "--to", &self.url()]).arg(self.mounted.join("large"));
        let mut send = send.stderr(Stdio::null()).spawn().unwrap();
        wait_until("parts are there", || self.parts().len() >= parts);
        send.kill().unwrap();
        send.wait().unwrap();
        assert_eq!(self.list()["unfinished"][0]["name"], "large");
    }

    fn take_large(&self) {
        self.change_and_take("head -c 200M /dev/urandom >large", "large");
    }

    fn folder(&self) -> PathBuf {
        self.mounted.folder().join("streams")
    }

    fn url(&self) -> String {
        format!("file://{}/", self.folder().display())
    }

    /// Sends a snapshot; returns what larder says.
    #[track_caller]
    fn send(&self, arguments: &[&str]) -> String {
        let url = self.url();
        let mut command = larder();
        command.args(["send", "--to", &url]).args(arguments).current_dir(self.mounted.path());
        said(&mut command)
    }

    fn send_all(&self) {
        self.send(&["one"]);
        self.send(&["-p", "one", "two"]);
        self.send(&["--incremental", "three"]);
    }

    /// The files of a snapshot.
    fn files(&self, snapshot: &str) -> Manifest {
        sent(&self.mounted.join(snapshot))
    }

    /// The names of the objects in a folder of the store, and their inodes.
    fn objects(&self, folder: &str) -> BTreeMap<PathBuf, u64> {
        if !self.folder().join(folder).is_dir() {
            return BTreeMap::new();
        }
        // Hidden files are not objects yet.
        let listed = shell(&self.folder(), &format!("find {folder} -type f ! -name '.*'"));
        let inode =
            |name: &str| Some((name.into(), self.folder().join(name).metadata().ok()?.ino()));
        listed.lines().filter_map(inode).collect()
    }

    fn parts(&self) -> BTreeMap<PathBuf, u64> {
        self.objects("streams")
    }

    fn list(&self) -> Value {
        json(&["streams", "list", &self.url()])
    }

    /// The paths of the parts of the only stream of a snapshot, in order.
    fn parts_of(&self, snapshot: &str) -> Vec<PathBuf> {
        let list = self.list();
        let streams = list["streams"].as_array().unwrap();
        let stream = streams.iter().find(|stream| stream["name"] == snapshot).unwrap();
        let folder = Path::new("streams").join(stream["id"].as_str().unwrap());
        let parts = self.parts().into_keys().filter(|part| part.starts_with(&folder));
        parts.map(|part| self.folder().join(part)).collect()
    }

    /// The snapshots in the image are those of the sender.
    #[track_caller]
    fn assert_received(&self, image: &Path, snapshots: &[&str]) {
        oracle::check(from_ref(&image.to_owned()), true).unwrap_or_else(|error| panic!("{error}"));
        let kernel = KernelMount::open(from_ref(&image.to_owned()), "ro");
        self.assert_same(kernel.path(), snapshots);
    }

    #[track_caller]
    fn assert_same(&self, folder: &Path, snapshots: &[&str]) {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut expected = snapshots.to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected);
        for snapshot in snapshots {
            assert_same(&sent(&folder.join(snapshot)), &self.files(snapshot));
        }
    }

    /// An empty image.
    fn image(&self, name: &str) -> PathBuf {
        let image = self.mounted.folder().join(name);
        succeed(larder().args(["mkfs", "-q", "-b", "1G"]).arg(&image));
        image
    }
}

/// What a stream has of the files at `path`.
pub(crate) fn sent(path: &Path) -> Manifest {
    let mut manifest = comparable(Manifest::of_tree(path));
    for entry in manifest.entries.values_mut() {
        (entry.ctime, entry.otime) = Default::default();
    }
    manifest
}

/// Runs larder, which must succeed; returns what it says on standard error.
#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Runs larder, which must fail; returns all that it says.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = larder().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// What larder writes as JSON, without its frame; it may fail.
fn json(arguments: &[&str]) -> Value {
    let output = larder().args(["--format", "json"]).args(arguments).output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
    });
    value[arguments[..2].join("-")].clone()
}

/// A web server for a directory.
pub(crate) struct Web {
    server: Child,
    port: u16,
}

impl Web {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub(crate) fn new(directory: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]);
        command.current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().unwrap();
        wait_until("the server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { server, port }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A part that no reader gets to the end of, until it is removed.
struct Stuck {
    part: PathBuf,
    content: Vec<u8>,
}

impl Stuck {
    fn new(part: &Path) -> Self {
        let content = fs::read(part).unwrap();
        fs::remove_file(part).unwrap();
        succeed(Command::new("mkfifo").arg(part));
        Self { part: part.to_owned(), content }
    }

    fn mend(self) {
        fs::remove_file(&self.part).unwrap();
        fs::write(self.part, self.content).unwrap();
    }
}

#[test]
fn a_chain_goes_through_objects_and_back() {
    let sender = Sender::new();
    let url = sender.url();
    assert!(refused(&["streams", "list", &url]).contains("there are no streams here"));
    sender.send(&["one"]);
    assert!(sender.send(&["--incremental", "two"]).contains("what differs from one"));
    sender.send(&["-p", "two", "--proto", "2", "--compressed-data", "three"]);
    let before = sender.parts();
    assert!(sender.send(&["one"]).contains("is there already"));
    assert!(sender.send(&["--incremental", "three"]).contains("is there already"));
    assert_eq!(sender.parts(), before);

    let list = sender.list();
    let streams = list["streams"].as_array().unwrap();
    let column = |name: &str| streams.iter().map(|it| it[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("name"), ["one", "two", "three"]);
    let uuids = column("uuid");
    assert_eq!(column("parent-uuid"), [Value::Null, uuids[0].clone(), uuids[1].clone()]);
    assert_eq!(column("version"), [1, 1, 2]);
    assert_eq!(list["unfinished"].as_array().unwrap().len(), 0);
    let text = succeed(larder().args(["streams", "list", &url]));
    let line = text.lines().find(|line| line.contains(" three ")).unwrap();
    assert!(
        line.trim_end().ends_with(" two") && line.starts_with(column("id")[2].as_str().unwrap()),
        "{text}"
    );
    let verified = succeed(larder().args(["streams", "verify", &url]));
    assert!(verified.contains("3 streams are as they were sent"), "{verified}");

    // Into an image: the newest, with all that it needs.
    let image = sender.image("whole.img");
    let into_image = ["receive", "--from", &url, &format!("{}:/", image.display())];
    let output = larder().args(into_image).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "At snapshot two\nAt snapshot three\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("At subvol one\n"), "{output:?}");
    sender.assert_received(&image, &["one", "two", "three"]);
    assert!(said(larder().args(into_image)).contains("three: is there already"));

    // Over HTTP, which lists nothing, in two steps.
    let web = Web::new(&sender.folder());
    let http = web.url("");
    let image = sender.image("web.img");
    let place = format!("{}:/", image.display());
    said(larder().args(["receive", "--from", &http, "--stream", "one", &place]));
    sender.assert_received(&image, &["one"]);
    said(larder().args(["receive", "--from", &http, &place]));
    sender.assert_received(&image, &["one", "two", "three"]);
    assert_eq!(succeed(larder().args(["streams", "list", &http])), text);
    let mut to_http = larder();
    to_http.args(["send", "--to", &http, "--proto", "2"]).arg(sender.mounted.join("two"));
    assert!(!to_http.status().unwrap().success());
    drop(web);

    // Onto mounts of larder and of the kernel, which takes the parts as they are, too.
    let other = Mounted::new();
    said(larder().args(["receive", "--from", &url, "--stream", "two"]).arg(other.path()));
    sender.assert_same(&other.path(), &["one", "two"]);
    other.finish();
    let image = sender.image("kernel.img");
    let kernel = KernelMount::open(from_ref(&image), "");
    let mut parts = Vec::new();
    sender.parts_of("one").iter().for_each(|part| parts.extend(fs::read(part).unwrap()));
    let mut btrfs = Command::new("btrfs");
    btrfs.arg("receive").arg(kernel.path()).stdin(Stdio::piped());
    let mut btrfs = btrfs.spawn().unwrap();
    btrfs.stdin.take().unwrap().write_all(&parts).unwrap();
    assert!(btrfs.wait().unwrap().success());
    // The owner of the directory may put anything in the place of the note.
    let (note, victim) = (kernel.path().join(".larder-receiving"), kernel.path().join("victim"));
    fs::write(&victim, "bread").unwrap();
    for plant in ["ln -s victim", "ln victim", "chown 1 victim; mv victim"] {
        shell(kernel.path(), &format!("{plant} .larder-receiving"));
        refused(&["receive", "--from", &url, &kernel.path().display().to_string()]);
        assert_eq!(fs::read(&note).unwrap(), b"bread");
        assert!(note.symlink_metadata().is_ok());
        fs::remove_file(&note).unwrap();
    }
    said(larder().args(["receive", "--from", &url]).arg(kernel.path()));
    sender.assert_same(kernel.path(), &["one", "two", "three"]);
}

#[test]
fn an_image_is_sent_as_objects_too() {
    let mut sender = Sender::new();
    let files = ["one", "three"].map(|snapshot| sender.files(snapshot));
    sender.mounted.unmount();
    let image = sender.mounted.image();
    let url = sender.url();
    let snapshot = |name: &str| format!("{}:/{name}", image.display());
    said(larder().args(["send", "--to", &url, &snapshot("one")]));
    let told = said(larder().args(["send", "--to", &url, "--incremental", &snapshot("three")]));
    assert!(told.contains("what differs from one"), "{told}");
    // What a receiver has not got is no parent.
    let told =
        said(larder().args(["send", "--to", &url, "-p", &snapshot("two"), &snapshot("one")]));
    assert!(told.contains("WARNING") && told.contains("no stream of the snapshot"), "{told}");
    let found = refused(&["streams", "verify", &url]);
    assert!(found.contains("one (") && found.contains("builds on the snapshot"), "{found}");
    let target = sender.image("target.img");
    let place = format!("{}:/", target.display());
    let refusal = refused(&["receive", "--from", &url, &place]);
    assert!(refusal.contains("the stream of one builds on the snapshot"), "{refusal}");
    said(larder().args(["receive", "--from", &url, "--stream", "three", &place]));
    let kernel = KernelMount::open(from_ref(&target), "ro");
    for (snapshot, files) in ["one", "three"].iter().zip(&files) {
        assert_same(&sent(&kernel.path().join(snapshot)), files);
    }
}

#[test]
fn a_killed_send_goes_on_where_it_was() {
    let sender = Sender::new();
    sender.take_large();
    for parts in [2, 9] {
        sender.be_killed_sending_large(parts);
        assert_eq!(sender.list()["streams"].as_array().unwrap().len(), 0);
    }
    let there = sender.parts();
    let told = sender.send(&["large"]);
    let expected = there.len() * 8;
    assert!(told.contains(&format!("{expected}.00MiB were there from an earlier send")), "{told}");
    // What was there is the same file as before.
    let now = sender.parts();
    assert!(now.len() > there.len());
    for (part, inode) in there {
        assert_eq!(now.get(&part), Some(&inode), "{part:?}");
    }
    let image = sender.image("target.img");
    said(larder().args(["receive", "--from", &sender.url()]).arg(format!("{}:/", image.display())));
    sender.assert_received(&image, &["large"]);
}

#[test]
fn an_incomplete_snapshot_is_completed_by_the_next_receive() {
    let sender = Sender::new();
    sender.send_all();
    let url = sender.url();
    let parts = sender.parts_of("two");
    let last = parts.last().unwrap();

    // A part that is damaged: what was complete before stays.
    let content = fs::read(last).unwrap();
    fs::write(last, &content[1..]).unwrap();
    let image = sender.image("target.img");
    let place = format!("{}:/", image.display());
    let error = refused(&["receive", "--from", &url, &place]);
    let name = last.file_name().unwrap().to_str().unwrap();
    assert!(
        error.contains(name) && error.contains("two is unfinished: run the command again to go on"),
        "{error}"
    );
    let left = succeed(larder().args(["ls", "-a", &place]));
    let left: Vec<_> = left.lines().skip(2).collect();
    assert!(left[0].starts_with(".larder-received-"), "{left:?}");
    assert_eq!(left[1..], [".larder-receiving", "one"]);
    let findings = json(&["streams", "verify", &url]);
    let finding = &findings["findings"][0];
    assert_eq!(
        (&finding["name"], findings["findings"].as_array().unwrap().len()),
        (&"two".into(), 1)
    );
    assert!(finding["problem"].as_str().unwrap().contains(name), "{finding}");
    assert!(refused(&["streams", "verify", &url, "two"]).contains(name));
    succeed(larder().args(["streams", "verify", &url, "one"]));
    fs::write(last, &content).unwrap();
    let told = said(larder().args(["receive", "--from", &url, &place]));
    assert!(told.contains("two: goes on at "), "{told}");
    sender.assert_received(&image, &["one", "two", "three"]);

    // Killed in the middle, on a mount of the kernel and on one of larder.
    let kernel_image = sender.image("kernel.img");
    let kernel = KernelMount::open(from_ref(&kernel_image), "");
    let other = Mounted::new();
    for folder in [kernel.path().to_owned(), other.path()] {
        let stuck = Stuck::new(last);
        let receive = || {
            let mut command = larder();
            command.args(["receive", "--checkpoint-every", "4M", "--from", &url]).arg(&folder);
            command
        };
        let mut killed = receive().stdout(Stdio::piped()).spawn().unwrap();
        let told = BufReader::new(killed.stdout.take().unwrap());
        assert!(told.lines().any(|line| line.unwrap() == "At snapshot two"));
        let is_shown = || folder.join("two").symlink_metadata().is_ok();
        // A mount of larder shows it when its server no longer receives it.
        if folder == kernel.path() {
            wait_until("the snapshot has begun", is_shown);
        }
        let again = refused(&["receive", "--from", &url, folder.to_str().unwrap()]);
        assert!(again.contains("somebody else is receiving"), "{again}");
        wait_until("there is a checkpoint", || {
            let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
            names.into_iter().any(|name| name.to_string_lossy().starts_with(".larder-received-"))
        });
        killed.kill().unwrap();
        killed.wait().unwrap();
        stuck.mend();
        wait_until("it is shown", is_shown);
        assert!(fs::read(folder.join(".larder-receiving")).unwrap().ends_with(b"/two"));
        let told = said(&mut receive());
        assert!(told.contains("two: goes on at "), "{told}");
        sender.assert_same(&folder, &["one", "two", "three"]);
    }
    other.finish();
}

/// The checkpoints that are in an image.
fn checkpoints(image: &Path) -> Vec<String> {
    let listed = larder().args(["ls", "-a"]).arg(image).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter(|name| name.starts_with(".larder-received-"));
    names.map(str::to_owned).collect()
}

#[test]
fn a_killed_receive_goes_on_from_a_checkpoint() {
    let sender = Sender::new();
    sender.take_large();
    sender.send(&["large"]);
    let url = sender.url();
    let parts = sender.parts_of("large");
    let stuck = Stuck::new(&parts[20]);
    let image = sender.image("target.img");
    let place = format!("{}:/", image.display());
    let receive = |every: &str| {
        let mut command = larder();
        command.args(["receive", "--checkpoint-every", every, "--from", &url, &place]);
        command
    };
    let mut killed = receive("40M").stderr(Stdio::null()).spawn().unwrap();
    let position = |name: &String| name.rsplit_once('-').unwrap().1.parse::<u64>().unwrap();
    wait_until("three were taken", || {
        checkpoints(&image).iter().any(|name| position(name) >= 3 * (40 << 20))
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    stuck.mend();
    // Nothing before the checkpoint is read again, except the first part.
    let content = fs::read(&parts[1]).unwrap();
    fs::remove_file(&parts[1]).unwrap();

    // Interrupted, it goes on where it was.
    let stuck = Stuck::new(&parts[23]);
    let mut interrupted = receive("1G").stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(interrupted.stderr.take().unwrap()).lines();
    assert!(told.any(|line| line.unwrap().contains("large: goes on at ")));
    // As timeout(1) does: to the process, and to its group.
    shell(Path::new("/"), &format!("kill -INT {0}; kill -INT {0}", interrupted.id()));
    wait_until("the signal has arrived", || {
        let status = fs::read_to_string(format!("/proc/{}/status", interrupted.id())).unwrap();
        let mut pending = status.lines().filter_map(|line| line.strip_prefix("ShdPnd:"));
        pending.all(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() == 0)
    });
    stuck.mend();
    let told: Vec<_> = told.map(Result::unwrap).collect();
    assert!(!interrupted.wait().unwrap().success());
    let told = told.join("\n");
    assert!(told.contains("large is unfinished: run the command again to go on at "), "{told}");
    let [checkpoint] = &checkpoints(&image)[..] else { panic!("there is one") };
    assert!(position(checkpoint) >= 3 * (40 << 20));

    said(&mut receive("1G"));
    sender.assert_received(&image, &["large"]);
    fs::write(&parts[1], content).unwrap();
    assert!(said(&mut receive("1G")).contains("is there already"));
}

#[test]
fn a_checkpoint_that_nobody_goes_on_from_is_removed() {
    let sender = Sender::new();
    sender.send_all();
    let url = sender.url();
    let parts = sender.parts_of("two");
    fs::remove_file(parts.last().unwrap()).unwrap();
    let image = sender.image("target.img");
    let place = format!("{}:/", image.display());
    refused(&["receive", "--from", &url, &place]);
    assert_eq!(checkpoints(&image).len(), 1);
    sender.send(&["--proto", "2", "three"]);
    let told = said(larder().args(["receive", "--from", &url, &place]));
    assert!(told.contains("two: was left unfinished, and was removed"), "{told}");
    sender.assert_received(&image, &["one", "three"]);
}

#[test]
fn nothing_of_the_users_is_removed() {
    let sender = Sender::new();
    sender.send_all();
    let url = sender.url();
    let image = sender.image("target.img");
    let own = format!("{}:/two", image.display());
    succeed(larder().args(["subvolume", "create", &own]));
    let place = format!("{}:/", image.display());
    let error = refused(&["receive", "--from", &url, &place]);
    assert!(error.contains("two: exists, and is not the snapshot"), "{error}");
    assert_eq!(succeed(larder().args(["ls", &place])), "one\ntwo\n");
    let error = refused(&["receive", "--from", &url, &place]);
    assert!(error.contains("two: exists, and is not the snapshot"), "{error}");
}

#[test]
fn streams_are_pruned_and_none_loses_its_parent() {
    let sender = Sender::new();
    sender.send_all();
    let url = sender.url();
    let error = refused(&["streams", "prune", &url, "one"]);
    assert!(error.contains("two (") && error.contains("builds on one ("), "{error}");
    assert!(error.contains("--dependents"), "{error}");
    let kept = succeed(larder().args(["streams", "prune", "--keep", "1", &url]));
    assert_eq!(kept.matches(" stays: a newer stream builds on it").count(), 2, "{kept}");
    // Without its parent it is a stream of its own.
    let mut whole = larder();
    whole.args(["send", "--to", &url, "--proto", "2"]).arg(sender.mounted.join("three"));
    said(&mut whole);
    assert!(refused(&["streams", "prune", &url, "three"]).contains("several streams are called"));
    sender.take_large();
    sender.be_killed_sending_large(sender.parts().len() + 1);
    let count = |value: &Value| value.as_array().unwrap().len();
    assert_eq!(count(&sender.list()["unfinished"]), 1);
    let pruned = json(&["streams", "prune", "--keep", "1", &url]);
    assert_eq!((count(&pruned["removed"]), count(&pruned["needed"])), (3, 0));
    assert_eq!(pruned["interrupted-sends"], 0);
    assert_eq!(count(&sender.list()["unfinished"]), 1);
    let pruned = json(&["streams", "prune", "--delete-after", "0s", &url]);
    assert_eq!(pruned["interrupted-sends"], 1);
    assert!(pruned["deleted-objects"].as_u64().unwrap() > 0);
    // What is left is one stream with its index.
    let list = sender.list();
    assert_eq!(list["streams"][0]["name"], "three");
    assert_eq!(sender.parts().len() as u64, list["streams"][0]["parts"].as_u64().unwrap());
    assert_eq!(sender.objects("indexes").len(), 1);
    let image = sender.image("target.img");
    said(larder().args(["receive", "--from", &url]).arg(format!("{}:/", image.display())));
    sender.assert_received(&image, &["three"]);
}

#[test]
fn senders_at_once_lose_no_stream() {
    let sender = Sender::new();
    let url = sender.url();
    let send = |snapshot: &str| {
        let mut command = larder();
        command.args(["send", "-q", "--to", &url]).arg(sender.mounted.join(snapshot));
        command.spawn().unwrap()
    };
    let mut senders = ["one", "two", "three", "one"].map(send);
    assert!(senders.iter_mut().all(|sender| sender.wait().unwrap().success()));
    let list = sender.list();
    let mut names: Vec<_> =
        list["streams"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, ["one", "three", "two"]);
    succeed(larder().args(["streams", "verify", &url]));
}
