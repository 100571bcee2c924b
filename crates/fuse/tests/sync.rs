//! What syncfs(2) and umount(2) promise about a mount of root is on the device when they return,
//! and they return errors of the device.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use larder::device::{Device, MemoryDevice};
use larder::{Filesystem, OpenOptions};
use larder_device::Operation;
use larder_fuse::usage::MountTable;
use larder_fuse::{Mount, MountOptions, Server, ServerOptions};
use larder_mkfs::{MkfsOptions, mkfs_on};
use larder_test_devices::{Fault, FaultDevice};
use larder_testkit::{RingsOffered, Scratch};
use rustix::fs::syncfs;
use rustix::io::Errno;

/// Ends serving also when the test fails.
struct Unmounts<'m>(&'m Mount);

impl Drop for Unmounts<'_> {
    fn drop(&mut self) {
        let _ = self.0.unmount(true);
    }
}

fn open(device: Arc<dyn Device>) -> Filesystem {
    // Nothing commits except what the test does.
    OpenOptions::new().write(true).commit_interval(None).open_devices(vec![device]).unwrap()
}

/// The content of a file on a copy of the device, as after a power cut.
fn found(device: &MemoryDevice, name: &str) -> Option<Vec<u8>> {
    let filesystem =
        OpenOptions::new().open_devices(vec![Arc::new(device.snapshot())]).expect("it is sound");
    let file = filesystem.default_subvolume().unwrap().open_file(name).ok()?;
    let mut content = vec![0; file.len_bytes() as usize];
    file.read_at(&mut content, 0).unwrap();
    Some(content)
}

/// Runs `work` on a mount.
fn on_a_mount(io_uring: bool, work: impl FnOnce(&Path, &MemoryDevice, &FaultDevice)) -> Filesystem {
    let memory = Arc::new(MemoryDevice::new("memory", 256 << 20));
    let device: Arc<dyn Device> = memory.clone();
    mkfs_on(std::slice::from_ref(&device), &MkfsOptions::default()).unwrap();
    let faults = Arc::new(FaultDevice::new(memory.clone()));
    let filesystem = open(faults.clone());
    let subvolume = filesystem.default_subvolume().unwrap();
    let server = Server::new(&filesystem, &subvolume, ServerOptions::default()).unwrap();
    let scratch = Scratch::new();
    let (point, image) = (scratch.path().join("mnt"), scratch.path().join("disk image"));
    fs::create_dir(&point).unwrap();
    // The mount is told where the devices are, and does no I/O there.
    File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let options = MountOptions { source: image.clone().into(), io_uring, ..Default::default() };
    let mount = Mount::new(&point, server, &options).unwrap();
    assert!(mount.sync_error().is_none(), "{:?}", mount.sync_error());
    let table = MountTable::of_this_process().unwrap();
    assert_eq!(table.ours_at(&point).map(|mount| &mount.source), Some(&image));
    thread::scope(|scope| {
        let serving = scope.spawn(|| mount.serve());
        let unmounts = Unmounts(&mount);
        work(&point, &memory, &faults);
        drop(unmounts);
        serving.join().unwrap().unwrap();
    });
    filesystem
}

fn data_is_durable_when_syncfs_returns(io_uring: bool) {
    on_a_mount(io_uring, |point, memory, _| {
        for round in 0..3 {
            let (name, content) = (format!("f{round}"), vec![round; 300_000]);
            fs::write(point.join(&name), &content).unwrap();
            assert_eq!(found(memory, &name), None, "nothing else commits");
            syncfs(File::open(point).unwrap()).unwrap();
            assert_eq!(found(memory, &name).as_ref(), Some(&content));
        }
    });
}

#[test]
fn data_is_durable_when_syncfs_returns_through_dev_fuse() {
    data_is_durable_when_syncfs_returns(false);
}

#[test]
fn data_is_durable_when_syncfs_returns_over_rings() {
    let _offered = RingsOffered::new();
    data_is_durable_when_syncfs_returns(true);
}

fn device_errors_are_errors_of_syncfs(io_uring: bool) {
    let filesystem = on_a_mount(io_uring, |point, memory, faults| {
        fs::write(point.join("kept"), "kept").unwrap();
        syncfs(File::open(point).unwrap()).unwrap();
        fs::write(point.join("lost"), "lost").unwrap();
        faults.inject(Fault::fail(Operation::Flush));
        assert_eq!(syncfs(File::open(point).unwrap()), Err(Errno::IO));
        // From then on the file system is read-only, and no caller is told that all is well.
        assert_eq!(syncfs(File::open(point).unwrap()), Err(Errno::ROFS));
        assert_eq!(found(memory, "kept").unwrap(), b"kept");
        assert_eq!(found(memory, "lost"), None);
    });
    // The server learns of it too, after the commit at unmounting.
    filesystem.sync().unwrap_err();
}

#[test]
fn device_errors_are_errors_of_syncfs_through_dev_fuse() {
    device_errors_are_errors_of_syncfs(false);
}

#[test]
fn device_errors_are_errors_of_syncfs_over_rings() {
    let _offered = RingsOffered::new();
    device_errors_are_errors_of_syncfs(true);
}

/// In another process, as every umount(2) of such a mount must be. The kernel's next mount does not
/// wait for the server.
#[test]
fn umount_returns_with_the_last_commit_and_nothing_is_written_later() {
    let mut copy = None;
    let filesystem = on_a_mount(false, |point, memory, faults| {
        fs::write(point.join("f"), "late").unwrap();
        let deleted = File::create_new(point.join("deleted")).unwrap();
        fs::remove_file(point.join("deleted")).unwrap();
        drop(deleted);
        assert_eq!(found(memory, "f"), None);
        let unmounted = Command::new("umount").arg("-i").arg(point).status();
        assert!(unmounted.unwrap().success());
        faults.inject(Fault::fail(Operation::Write));
        copy = Some(memory.snapshot());
    });
    assert_eq!(found(&copy.unwrap(), "f").unwrap(), b"late");
    filesystem.sync().unwrap();
}
