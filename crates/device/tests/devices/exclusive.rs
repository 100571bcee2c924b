//! A device has one writer only, and none while a kernel uses it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use larder_device::{Access, Device, DeviceError, FileDevice, InUse, Link, StandIn, in_use};

use crate::support::{Loop, Mount, Scratch, Undo, require_root, run};

const MIB: u64 = 1 << 20;
const IMAGE_BYTES: u64 = 128 * MIB;

/// The use that prevents opening `path` for writing.
fn refusal(path: &Path) -> InUse {
    match FileDevice::open(path, Access::ReadWrite) {
        Err(DeviceError::InUse { device, by }) => {
            assert_eq!(device, path.display().to_string());
            assert_seen_in_use(path, Some(&by));
            by
        }
        other => panic!("{} was not refused: {other:?}", path.display()),
    }
}

fn assert_free(path: &Path) {
    drop(FileDevice::open(path, Access::ReadWrite).unwrap());
    assert_seen_in_use(path, None);
}

/// The use that a reader sees. A writer waits for uses that end in a moment, a reader does not: a
/// dropped lock lives on while another test's thread is between fork and exec.
fn assert_seen_in_use(path: &Path, expected: Option<&InUse>) {
    for _ in 0..100 {
        if in_use(path).unwrap().as_ref() == expected {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(in_use(path).unwrap().as_ref(), expected);
}

fn mounted_at(path: &Path) -> InUse {
    InUse::Mounted { at: Some(path.to_owned()) }
}

fn linked(link: Link, other: &Path, then: Option<InUse>) -> InUse {
    InUse::Linked { link, other: other.to_owned(), then: then.map(Box::new) }
}

#[test]
fn second_writer_is_refused_by_any_name() {
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", MIB);
    let other_name = scratch.path("hard-link.img");
    fs::hard_link(&path, &other_name).unwrap();

    let writer = FileDevice::open(&path, Access::ReadWrite).unwrap();
    assert_eq!(refusal(&path), InUse::Locked);
    assert_eq!(refusal(&other_name), InUse::Locked);
    FileDevice::open(&path, Access::ReadOnly).unwrap();
    drop(writer);
    assert_free(&path);
}

/// Locks a file. Then its first thread ends, and another one later, so that the process ends slowly.
const ENDING: &str = "
import ctypes, fcntl, os, sys, threading, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print('locked', flush=True)
threading.Thread(target=lambda: (time.sleep(2), os._exit(0))).start()
ctypes.CDLL(None).pthread_exit(None)
";

#[test]
fn a_writer_waits_for_a_process_that_ends() {
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", MIB);
    let mut process = Command::new("python3");
    process.args(["-c", ENDING]).arg(&path).stdout(Stdio::piped());
    let mut process = process.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "locked\n");
    let stat = format!("/proc/{}/stat", process.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    FileDevice::open(&path, Access::ReadWrite).unwrap();
    process.wait().unwrap();
}

#[test]
fn readers_do_not_keep_a_writer_out() {
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", MIB);
    let _reader = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert_free(&path);
}

#[test]
fn creating_over_a_file_in_use_leaves_it_alone() {
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", MIB);
    let writer = FileDevice::open(&path, Access::ReadWrite).unwrap();
    writer.write_at(b"precious", 4096).unwrap();

    let error = FileDevice::create(&path, 2 * MIB).unwrap_err();
    assert!(matches!(error, DeviceError::InUse { by: InUse::Locked, .. }), "{error}");
    let content = fs::read(&path).unwrap();
    assert_eq!((content.len() as u64, &content[4096..4104]), (MIB, &b"precious"[..]));
}

#[test]
fn attached_file_is_refused_by_any_name() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk image.img", MIB);
    let attached = Loop::attach(&path);
    let by = linked(Link::AttachedAs, &attached.0, None);
    assert_eq!(refusal(&path), by);
    assert_eq!(by.to_string(), format!("attached as {}; detach it first", attached.0.display()));

    // The name that it was attached by is gone; another leads to the file.
    let other_name = scratch.path("hard-link.img");
    fs::hard_link(&path, &other_name).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(refusal(&other_name), by);

    // And that name now belongs to another file.
    fs::write(&path, b"innocent").unwrap();
    assert_free(&path);
    drop(attached);
    assert_free(&other_name);
}

#[test]
fn mounted_btrfs_is_refused_with_its_mount_point() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", IMAGE_BYTES);
    run("mkfs.btrfs", &["-q", path.to_str().unwrap()]);
    let attached = Loop::attach(&path);
    let mount = Mount::new(&["-t", "btrfs"], &attached.0, scratch.directory("mount point"));

    assert_eq!(refusal(&attached.0), mounted_at(&mount.0));
    let by = refusal(&path);
    assert_eq!(by, linked(Link::AttachedAs, &attached.0, Some(mounted_at(&mount.0))));
    let (loop_device, mount_point) = (attached.0.display(), mount.0.display());
    assert_eq!(
        FileDevice::open(&path, Access::ReadWrite).unwrap_err().to_string(),
        format!(
            "{}: attached as {loop_device}, which is mounted at {mount_point}; \
             unmount and detach it first",
            path.display()
        )
    );

    FileDevice::open(&attached.0, Access::ReadOnly).unwrap();
    drop(mount);
    assert_free(&attached.0);
}

#[test]
fn every_member_of_a_mounted_btrfs_is_refused() {
    require_root!();
    let scratch = Scratch::new();
    let members: Vec<Loop> = (0..3)
        .map(|number| Loop::attach(&scratch.file(&format!("disk{number}.img"), IMAGE_BYTES)))
        .collect();
    let mut arguments = vec!["-q", "-d", "raid0", "-m", "raid1"];
    arguments.extend(members.iter().map(|member| member.0.to_str().unwrap()));
    run("mkfs.btrfs", &arguments);
    let option = |member: &Loop| format!("device={}", member.0.display());
    let options = members.iter().map(option).collect::<Vec<_>>().join(",");
    let mount = Mount::new(&["-o", &options], &members[0].0, scratch.directory("mount"));

    for member in &members {
        assert_eq!(refusal(&member.0), mounted_at(&mount.0));
    }
}

#[test]
fn mount_in_another_namespace_is_refused() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", IMAGE_BYTES);
    run("mkfs.btrfs", &["-q", path.to_str().unwrap()]);
    let attached = Loop::attach(&path);
    let mount = scratch.directory("mount");
    // The shell inside keeps the namespace, and so the mount, until its input ends.
    let script = "mount \"$0\" \"$1\" && echo mounted && read line";
    let mut elsewhere = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .args([&attached.0, &mount])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 8];
    let read = std::io::Read::read_exact(elsewhere.stdout.as_mut().unwrap(), &mut line);
    let by = read.map(|()| refusal(&attached.0));
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    assert_eq!(by.unwrap(), InUse::Mounted { at: None });
}

#[test]
fn loop_device_and_its_file_share_one_writer() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", MIB);
    let writer = FileDevice::open(&path, Access::ReadWrite).unwrap();
    let (first, second) = (Loop::attach(&path), Loop::attach(&path));
    let backed = linked(Link::BackedBy, &path, Some(InUse::Locked));
    assert_eq!(refusal(&first.0), backed, "the file has a writer");
    drop(writer);

    let writer = FileDevice::open(&first.0, Access::ReadWrite).unwrap();
    assert_eq!(refusal(&first.0), InUse::Locked);
    assert_eq!(refusal(&second.0), backed, "the other loop device has a writer");
    drop(writer);
    assert_free(&second.0);
}

#[test]
fn block_device_has_one_writer_through_all_its_nodes() {
    require_root!();
    let scratch = Scratch::new();
    let attached = Loop::attach(&scratch.file("disk.img", MIB));
    let rdev = attached.0.metadata().unwrap().rdev();
    let node = scratch.path("node");
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    run("mknod", &[node.to_str().unwrap(), "b", &major.to_string(), &minor.to_string()]);

    // Locks belong to the node, the kernel's claim to the device.
    let writer = FileDevice::open(&attached.0, Access::ReadWrite).unwrap();
    let error = FileDevice::open(&node, Access::ReadWrite).unwrap_err();
    assert!(matches!(error, DeviceError::InUse { by: InUse::Locked, .. }), "{error}");
    drop(writer);
    assert_free(&node);
}

/// The kernel's claim passes as a lock does: a child that another thread started has the file of a
/// dropped device open until it executes its program.
#[test]
fn a_claim_that_passes_is_waited_for() {
    require_root!();
    let scratch = Scratch::new();
    let attached = Loop::attach(&scratch.file("disk.img", MIB));
    let claim = rustix::fs::open(
        &attached.0,
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let claim = claim.unwrap();
    let passes = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(claim);
    });
    FileDevice::open(&attached.0, Access::ReadWrite).unwrap();
    passes.join().unwrap();
}

#[test]
fn partition_in_use_keeps_the_disk_from_being_written() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", 2 * IMAGE_BYTES);
    let disk = Loop::attach_with(&["--partscan"], &path);
    let name = disk.0.to_str().unwrap();
    let sectors = (IMAGE_BYTES / 512).to_string();
    run("addpart", &[name, "1", "2048", &sectors]);
    let _partition = Undo("delpart", vec![name.to_owned(), "1".to_owned()]);
    let partition = Path::new(&format!("{name}p1")).to_owned();
    assert_free(&disk.0);
    assert_free(&partition);

    run("mkfs.btrfs", &["-q", partition.to_str().unwrap()]);
    let mount = Mount::new(&[], &partition, scratch.directory("mount"));
    let divided = linked(Link::Partition, &partition, Some(mounted_at(&mount.0)));
    assert_eq!(refusal(&partition), mounted_at(&mount.0));
    assert_eq!(refusal(&disk.0), divided);
    assert_eq!(refusal(&path), linked(Link::AttachedAs, &disk.0, Some(divided)));
    drop(mount);

    // A writer of the partition holds the file beneath it.
    let _writer = FileDevice::open(&partition, Access::ReadWrite).unwrap();
    let second = Loop::attach(&path);
    assert_eq!(refusal(&second.0), linked(Link::BackedBy, &path, Some(InUse::Locked)));
}

#[test]
fn active_swap_is_refused() {
    require_root!();
    let scratch = Scratch::new();
    let attached = Loop::attach(&scratch.file("swap.img", MIB));
    let name = attached.0.to_str().unwrap();
    run("mkswap", &[name]);
    run("swapon", &[name]);
    let _swap = Undo("swapoff", vec![name.to_owned()]);
    assert_eq!(refusal(&attached.0), InUse::Swap);
}

/// A mount may have a stand-in as its source. It excludes only the writers that the mount excludes.
#[test]
fn a_stand_in_does_not_count_as_a_use() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", MIB);
    let writer = FileDevice::open(&path, Access::ReadWrite).unwrap();
    let stand_in = StandIn::attach(&path).unwrap();
    assert_eq!(StandIn::target_of(stand_in.path()).unwrap(), path);
    assert_eq!(refusal(&path), InUse::Locked);
    // The lock ends with its holder.
    drop(writer);
    assert_free(&path);
    // Opening the stand-in itself would make a second writer.
    let writer = FileDevice::open(&path, Access::ReadWrite).unwrap();
    assert_eq!(refusal(stand_in.path()), linked(Link::BackedBy, &path, Some(InUse::Locked)));
    drop(writer);
    let other = Loop::attach(&path);
    assert_eq!(refusal(&path), linked(Link::AttachedAs, &other.0, None));
    drop(other);
    let device = stand_in.path().to_owned();
    drop(stand_in);
    // A child of another test between fork and exec has it open for a moment, and then it may be
    // attached to another file.
    let is_attached = || StandIn::target_of(&device).as_ref() == Some(&path);
    (0..6000).take_while(|_| is_attached()).for_each(|_| thread::sleep(Duration::from_millis(10)));
    assert!(!is_attached());
}

/// A mount of a stand-in counts as a mount of its target.
#[test]
fn a_stand_in_that_is_mounted_is_seen() {
    require_root!();
    let scratch = Scratch::new();
    let path = scratch.file("disk.img", IMAGE_BYTES);
    run("mkfs.btrfs", &["-q", path.to_str().unwrap()]);
    let stand_in = StandIn::attach(&path).unwrap();
    let mount = Mount::new(&["-t", "btrfs"], stand_in.path(), scratch.directory("mount point"));
    assert_eq!(refusal(&path), mounted_at(&mount.0));
    drop(mount);
    assert_free(&path);
}
