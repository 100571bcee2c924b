//! Work while a device is busy: readers and writers of a file whose data is being written back,
//! threads that do everything to one file at once.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use larder::commands::{Change, Changes, Checked, Command, Original, Timestamp};
use larder::device::{Device, DeviceError, MemoryDevice, Operation};
use larder::{
    AllocateMode, CompressionAlgorithm, ErrorKind, File, Filesystem, Inode, InodeFlags,
    OpenOptions, RenameMode, SetAttributes, WriteCompression, XattrMode,
};
use larder_power_cuts::{assert_sound, load};
use larder_test_devices::{Fault, FaultDevice};
use larder_testkit::{Content, ImageSpec, KernelImage, Scale};
use parking_lot::{Condvar, Mutex};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::on_memory::file_system;
use super::{check, faults, open};

const SECTOR: u64 = 4096;

/// A device whose writes wait while its gate is shut.
#[derive(Debug)]
struct Gated {
    inner: Arc<dyn Device>,
    gate: Gate,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_shut: bool,
    waiting: usize,
}

impl Gate {
    fn shut(&self) {
        self.state.lock().is_shut = true;
    }

    fn open(&self) {
        self.state.lock().is_shut = false;
        self.changed.notify_all();
    }

    /// Returns once a write waits at it.
    fn wait_for_somebody(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.waiting == 0);
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.is_shut);
        state.waiting -= 1;
    }
}

impl Device for Gated {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.inner.read_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        self.gate.pass();
        self.inner.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        self.inner.readahead(offset, len_bytes);
    }
}

/// A file system in memory behind a gate and faults, and the memory.
fn gated(name: &str) -> (Filesystem, Arc<Gated>, Arc<FaultDevice>, Arc<MemoryDevice>) {
    gated_with(name, OpenOptions::new().commit_interval(None))
}

fn gated_with(
    name: &str,
    options: OpenOptions,
) -> (Filesystem, Arc<Gated>, Arc<FaultDevice>, Arc<MemoryDevice>) {
    let content = Content::new(93).scale(Scale::Small);
    let image = KernelImage::build(&ImageSpec::new(name), &content);
    let memory = Arc::new(load(&image.devices()[0]));
    let faults = Arc::new(FaultDevice::new(memory.clone()));
    let device = Arc::new(Gated { inner: faults.clone(), gate: Gate::default() });
    let fs = options.write(true).open_devices(vec![device.clone()]).unwrap();
    (fs, device, faults, memory)
}

fn read(file: &File, start: u64, len: u64) -> Vec<u8> {
    let mut buf = vec![0xaa; len as usize];
    let len = file.read_at(&mut buf, start).unwrap();
    buf.truncate(len);
    buf
}

/// No thread waits for a device unless it needs data from it.
#[test]
fn a_file_is_read_and_written_while_its_data_is_on_its_way() {
    let (fs, device, _, memory) = gated("meanwhile");
    let root = fs.subvolume("/").unwrap();
    let file = root.create("file", 0o644).unwrap();
    let half = 64 * SECTOR;
    file.write_at(&vec![1; 2 * half as usize], 0).unwrap();
    fs.sync().unwrap();
    file.write_at(&vec![2; half as usize], 0).unwrap();
    device.gate.shut();
    thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync());
        device.gate.wait_for_somebody();
        // Data under writeback, data on the device, and both.
        assert!(read(&file, 10, half - 10) == vec![2; half as usize - 10]);
        assert!(read(&file, half + 10, 10 * SECTOR) == vec![1; 10 * SECTOR as usize]);
        assert_eq!(read(&file, half - 1, 2), [2, 1]);
        // Over data under writeback, in part of a sector; after the end; and back.
        file.write_at(&[3; 100], 50).unwrap();
        file.write_at(&[4; 100], 3 * half).unwrap();
        assert_eq!(read(&file, 49, 102), [&[2][..], &[3; 100], &[2]].concat());
        assert_eq!(read(&file, 3 * half - 1, 200), [&[0][..], &[4; 100]].concat());
        assert_eq!(file.len_bytes(), 3 * half + 100);
        device.gate.open();
        syncing.join().unwrap().unwrap();
    });
    let mut expected = vec![2; half as usize];
    expected.resize(2 * half as usize, 1);
    expected.resize(3 * half as usize, 0);
    expected.extend([4; 100]);
    expected[50..150].fill(3);
    assert!(read(&file, 0, 4 * half) == expected);
    fs.sync().unwrap();
    assert!(read(&file, 0, 4 * half) == expected);
    drop((root, file, fs));
    assert_sound([&*memory], "writing meanwhile");
    let fs = faults::open(memory.snapshot()).unwrap();
    assert!(read(&fs.subvolume("/").unwrap().open_file("file").unwrap(), 0, 4 * half) == expected);
}

/// After a failed write, data stays in memory, with later writes over it, and is written later.
#[test]
fn failed_writeback_loses_no_data() {
    let (fs, device, faults, memory) = gated("refused");
    let root = fs.subvolume("/").unwrap();
    let file = root.create("file", 0o644).unwrap();
    file.write_at(&vec![1; 20 * SECTOR as usize], 0).unwrap();
    fs.sync().unwrap();
    file.write_at(&vec![2; 10 * SECTOR as usize], 0).unwrap();
    device.gate.shut();
    thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync());
        device.gate.wait_for_somebody();
        file.write_at(&[3; 5000], SECTOR).unwrap();
        faults.inject(Fault::fail(Operation::Write).times(1));
        device.gate.open();
        let error = syncing.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let place = format!("subvolume 5, inode {}, offset 0: ", file.number());
        assert!(error.to_string().contains(&place), "{error}");
    });
    let mut expected = vec![2; 10 * SECTOR as usize];
    expected[SECTOR as usize..SECTOR as usize + 5000].fill(3);
    expected.resize(20 * SECTOR as usize, 1);
    assert!(read(&file, 0, 20 * SECTOR) == expected);
    file.sync().unwrap();
    assert!(read(&file, 0, 20 * SECTOR) == expected);
    drop((root, file, fs));
    let fs = faults::open(memory.snapshot()).unwrap();
    let file = fs.subvolume("/").unwrap().open_file("file").unwrap();
    assert!(read(&file, 0, 20 * SECTOR) == expected);
}

/// However slow a device is, the data that waits for it is bounded.
#[test]
fn threads_that_change_much_wait_for_a_slow_device() {
    const COMMIT_BYTES: usize = 512 << 10;
    const VALUE_BYTES: usize = 3000;
    let files = 40 * COMMIT_BYTES / VALUE_BYTES;
    let (fs, device, _, memory) = gated_with("slow", OpenOptions::new().commit_bytes(COMMIT_BYTES));
    let root = fs.subvolume("/").unwrap();
    let made = AtomicUsize::new(0);
    device.gate.shut();
    thread::scope(|scope| {
        let making = scope.spawn(|| {
            for number in 0..files {
                let file = root.create(format!("{number}"), 0o644).unwrap();
                file.set_xattr("user.much", &[7; VALUE_BYTES], XattrMode::Any).unwrap();
                made.fetch_add(1, Relaxed);
            }
        });
        // Of the commit that begins when enough has changed.
        device.gate.wait_for_somebody();
        let mut before = usize::MAX;
        while before != made.load(Relaxed) {
            before = made.load(Relaxed);
            thread::sleep(Duration::from_millis(200));
        }
        let is_waiting = !making.is_finished();
        device.gate.open();
        making.join().unwrap();
        assert!(is_waiting && before < files / 2, "{before} of {files} were made");
    });
    assert_eq!(made.into_inner(), files);
    fs.sync().unwrap();
    drop((root, fs));
    assert_sound([&*memory], "waiting for a slow device");
}

/// Threads share sectors: no part is a multiple of these.
const PART: u64 = 21 * SECTOR + 1234;
const PARTS: u64 = 4;

/// A thread's part of a file, and its expected content.
struct Part<'f> {
    file: &'f File,
    start: u64,
    data: Vec<u8>,
    random: StdRng,
}

impl Part<'_> {
    fn play(&mut self, rounds: usize) {
        for round in 0..rounds {
            let start = self.random.random_range(0..PART);
            let len = self.random.random_range(1..=(PART - start).min(5 * SECTOR));
            let (at, range) = (self.start + start, start as usize..(start + len) as usize);
            match self.random.random_range(0..10) {
                0..5 => {
                    let fill = self.random.random::<u8>();
                    self.file.write_at(&vec![fill; len as usize], at).unwrap();
                    self.data[range].fill(fill);
                }
                5 => {
                    self.file.punch_hole(at, len).unwrap();
                    self.data[range].fill(0);
                }
                6 => {
                    self.file.zero_range(at, len, AllocateMode::KeepSize).unwrap();
                    self.data[range].fill(0);
                }
                7 => self.file.sync().unwrap(),
                _ => {
                    let seen = read(self.file, at, len);
                    assert!(seen == self.data[range], "round {round}, {len} bytes from {at}");
                }
            }
        }
    }
}

/// The file after the parts grows and shrinks, and is a target of clones.
fn play_end(file: &File, source: &File, rounds: usize, random: &mut StdRng) -> Vec<u8> {
    let start = (PARTS * PART).next_multiple_of(SECTOR);
    let mut data = vec![0; 1];
    for _ in 0..rounds {
        let at = random.random_range(0..20 * SECTOR);
        match random.random_range(0..4) {
            0 => {
                file.set_len(start + at + 1).unwrap();
                data.resize(at as usize + 1, 0);
            }
            1 => {
                let to = at / SECTOR * SECTOR;
                file.clone_range(source, 0, 0, start + to).unwrap();
                data.resize(data.len().max(to as usize + 3 * SECTOR as usize), 0);
                data[to as usize..][..3 * SECTOR as usize].fill(9);
            }
            2 => {
                file.write_at(&[8; 3000], start + at).unwrap();
                data.resize(data.len().max(at as usize + 3000), 0);
                data[at as usize..][..3000].fill(8);
            }
            _ => assert!(read(file, start, 40 * SECTOR) == data),
        }
    }
    data
}

/// Each thread reads what it last wrote to its part, whatever the others do and however often
/// everything is written back and committed.
#[test]
fn threads_do_everything_to_one_file() {
    let content = Content::new(94).scale(Scale::Small);
    let image = KernelImage::build(&ImageSpec::new("one-file"), &content);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let mut expected = Vec::new();
    for (name, flags, compresses) in [
        ("plain", InodeFlags::empty(), false),
        ("in-place", InodeFlags::NODATACOW, false),
        ("compressed", InodeFlags::empty(), true),
    ] {
        let seed = larder_testkit::seed(0);
        let compression = CompressionAlgorithm::Lzo.into();
        let compression = WriteCompression { compression, force: true };
        fs.set_compression(compresses.then_some(compression)).unwrap();
        let create = |name: String| {
            let file = root.create(name, 0o644).unwrap();
            let attributes = SetAttributes { flags: Some(flags), ..Default::default() };
            file.set_attributes(&attributes).unwrap();
            file
        };
        let (file, source) = (create(name.into()), create(format!("{name}-source")));
        source.write_at(&[9; 3 * SECTOR as usize], 0).unwrap();
        file.set_len((PARTS * PART).next_multiple_of(SECTOR) + 1).unwrap();
        let mut parts: Vec<Part<'_>> = (0..PARTS)
            .map(|number| Part {
                file: &file,
                start: number * PART,
                data: vec![0; PART as usize],
                random: StdRng::seed_from_u64(seed + number),
            })
            .collect();
        let end = thread::scope(|scope| {
            for part in &mut parts {
                scope.spawn(|| part.play(100));
            }
            scope.spawn(|| (0..6).for_each(|_| fs.sync().unwrap()));
            let end =
                scope.spawn(|| play_end(&file, &source, 60, &mut StdRng::seed_from_u64(seed + 99)));
            end.join().unwrap()
        });
        let mut data: Vec<u8> = parts.iter().flat_map(|part| part.data.clone()).collect();
        data.resize((PARTS * PART).next_multiple_of(SECTOR) as usize, 0);
        data.extend(end);
        assert!(read(&file, 0, 2 * data.len() as u64) == data, "{name}");
        expected.push((name, data));
    }
    fs.sync().unwrap();
    drop((root, fs));
    check(&image, "threads at one file");
    let mount = image.mount("ro,noatime");
    for (name, data) in expected {
        assert!(std::fs::read(mount.path().join(name)).unwrap() == data, "{name}");
    }
}

/// Commands for files by their paths mean the files that the commands made, whatever other users
/// do with names meanwhile.
#[test]
fn attributes_of_a_copy_stay_with_it_when_another_file_takes_its_place() {
    let (_fs, root, _memory) = file_system("exchanged");
    let secret = root.create("secret", 0o600).unwrap();
    let owner = secret.metadata().uid;
    let top = root.open_directory("/").unwrap();
    let mut changes = Changes::below(top.clone(), (0, 0));
    let data = vec![7; 200 << 10];
    let commands = [
        Command::Mkfile { path: b"new", ino: 0 },
        Command::Rename { path: b"new", to: b"copy" },
        Command::Write { path: b"copy", offset: 0, data: &data },
        Command::Write { path: b"copy", offset: data.len() as u64, data: &data },
        Command::Chown { path: b"copy", uid: 1000, gid: 1000 },
        Command::Mkfile { path: b"next", ino: 0 },
        Command::Write { path: b"next", offset: 0, data: &data },
    ];
    for command in commands {
        changes.apply(&command.into(), Checked::Anything).unwrap();
    }
    let copy = root.open_file("copy").unwrap();
    top.rename_child("copy".as_ref(), &top, "secret".as_ref(), RenameMode::Exchange).unwrap();
    let last = Command::Write { path: b"next", offset: data.len() as u64, data: &data };
    changes.apply(&last.into(), Checked::Anything).unwrap();
    changes.apply_deferred().unwrap();
    assert_eq!((secret.metadata().uid, copy.metadata().uid), (owner, 1000));
}

/// The same for a file that exists before it gets its last name.
#[test]
fn a_file_that_a_stream_made_is_the_one_that_it_moves() {
    let (_fs, root, _memory) = file_system("moved");
    let secret = root.create("secret", 0o600).unwrap();
    let top = root.open_directory("/").unwrap();
    let exchange = |one: &str| {
        top.rename_child(one.as_ref(), &top, "secret".as_ref(), RenameMode::Exchange).unwrap();
    };
    let mut changes = Changes::below(top.clone(), (0, 0));
    let mut make = |command: Command<'_>| {
        changes.apply(&command.into(), Checked::Anything).and_then(|()| changes.apply_deferred())
    };
    make(Command::Mkfile { path: b"new", ino: 0 }).unwrap();
    let made = root.open_file("new").unwrap();
    exchange("new");
    let rename = Command::Rename { path: b"new", to: b"copy" };
    let error = make(rename).unwrap_err();
    assert!(error.to_string().contains("has taken its place"), "{error}");
    assert!(root.open_file("copy").is_err());
    exchange("new");
    make(Command::Chown { path: b"new", uid: 1, gid: 1 }).unwrap();
    make(rename).unwrap();
    exchange("copy");
    make(Command::Chown { path: b"copy", uid: 1000, gid: 1000 }).unwrap();
    assert_eq!((secret.metadata().uid, made.metadata().uid), (0, 1000));
}

/// The same for directories, when a stream has used more than it keeps open.
#[test]
fn a_path_of_a_stream_leads_to_one_directory() {
    let (_fs, root, _memory) = file_system("exchanged directories");
    let top = root.open_directory("/").unwrap();
    root.create_directory("secret", 0o700).unwrap();
    let secret = root.open_directory("secret").unwrap();
    let mut changes = Changes::below(top.clone(), (0, 0));
    let mut make = |command: Command<'_>| {
        changes.make_room();
        changes.apply(&command.into(), Checked::Anything).and_then(|()| changes.apply_deferred())
    };
    make(Command::Mkdir { path: b"made", ino: 0 }).unwrap();
    for number in 0..1023 {
        make(Command::Mkdir { path: format!("made/{number}").as_bytes(), ino: 0 }).unwrap();
    }
    let exchange = || {
        top.rename_child("made".as_ref(), &top, "secret".as_ref(), RenameMode::Exchange).unwrap();
    };
    exchange();
    let commands = [
        Command::Mkfile { path: b"made/file", ino: 0 },
        Command::Chown { path: b"made", uid: 1000, gid: 1000 },
        Command::Rmdir { path: b"made/7" },
    ];
    for command in commands {
        let error = make(command).unwrap_err();
        assert!(error.to_string().contains("has taken its place"), "{error}");
    }
    assert_eq!((secret.metadata().uid, secret.entries().unwrap().count()), (0, 0));
    exchange();
    make(Command::Chown { path: b"made", uid: 1000, gid: 1000 }).unwrap();
    assert_eq!(root.open_directory("made").unwrap().metadata().uid, 1000);
}

/// A change that its caller has checked finds the same inodes when it is applied, or fails.
#[test]
fn a_change_concerns_the_inodes_that_were_checked() {
    let (_fs, root, _memory) = file_system("checked");
    let top = root.open_directory("/").unwrap();
    let id = |inode: &Inode| Original { subvolume: inode.subvolume_id(), inode: inode.number() };
    let exchange = |one: &str, other: &str| {
        top.rename_child(one.as_ref(), &top, other.as_ref(), RenameMode::Exchange).unwrap();
    };
    let time = Timestamp { seconds: 1, nanoseconds: 0 };
    let data = vec![1; 20 << 10];
    let path: &[u8] = b"own";
    let changes: [Change<'_>; 14] = [
        Command::Unlink { path }.into(),
        Command::Rmdir { path: b"own-directory" }.into(),
        Command::Rename { path, to: b"moved" }.into(),
        Command::Rename { path: b"other", to: path }.into(),
        Command::Link { path: b"linked", existing: path }.into(),
        Command::Chmod { path, mode: 0o777 }.into(),
        Command::Chown { path, uid: 1, gid: 1 }.into(),
        Command::Utimes { path, atime: time, mtime: time, ctime: time, otime: None }.into(),
        Command::SetXattr { path, name: b"user.a", data: b"b" }.into(),
        Command::Write { path, offset: 0, data: b"own" }.into(),
        Command::Write { path, offset: 0, data: &data }.into(),
        Command::Truncate { path, size: 0 }.into(),
        Command::Fallocate { path, mode: 0, offset: 0, len: 1 << 20 }.into(),
        Change::Copy { path, original: id(&root.create("original", 0o600).unwrap()) },
    ];
    for directory in ["own-directory", "secret-directory"] {
        root.create_directory(directory, 0o700).unwrap();
    }
    let [own, other] = ["own", "other"].map(|name| id(&root.create(name, 0o600).unwrap()));
    let secret = root.create("secret", 0o600).unwrap();
    secret.write_at(b"secret", 0).unwrap();
    let state = || {
        let names = top.entries().unwrap().map(|entry| entry.unwrap().name().to_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        (secret.metadata(), secret.xattrs().count(), names)
    };
    for change in changes {
        let (name, secret, checked) = match change.command() {
            Some(Command::Rmdir { .. }) => {
                let directory = root.open_directory("own-directory").unwrap();
                ("own-directory", "secret-directory", Checked::Inode(id(&directory)))
            }
            Some(Command::Rename { to, .. }) if to == path => {
                ("own", "secret", Checked::Names { moved: other, replaced: Some(own) })
            }
            Some(Command::Rename { .. }) => {
                ("own", "secret", Checked::Names { moved: own, replaced: None })
            }
            _ => ("own", "secret", Checked::Inode(own)),
        };
        exchange(name, secret);
        let before = state();
        let mut changes = Changes::below(top.clone(), (0, 0));
        let applied = changes.apply(&change, checked).and_then(|()| changes.apply_deferred());
        let error = applied.expect_err("it finds another inode");
        assert!(error.to_string().contains("has taken its place"), "{change:?}: {error}");
        assert_eq!(state(), before, "{change:?}");
        exchange(name, secret);
    }
}
