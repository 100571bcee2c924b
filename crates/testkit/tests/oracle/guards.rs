//! Guards undo their work, also when a test fails.

use std::path::{Path, PathBuf};

use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, LoopDevice, Scratch};

fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("proc is mounted");
    mounts.lines().any(|line| line.split(' ').nth(1) == point.to_str())
}

fn is_attached(file: &Path) -> bool {
    let files = std::fs::read_dir("/sys/block").expect("sysfs is mounted");
    let backing = files.filter_map(|block| {
        std::fs::read_to_string(block.ok()?.path().join("loop/backing_file")).ok()
    });
    backing.into_iter().any(|name| Path::new(name.trim_end()) == file)
}

#[test]
fn a_loop_device_is_detached_when_a_test_panics() {
    let scratch = Scratch::new();
    let file = scratch.sparse_file("file", 1 << 20);
    let outcome = std::panic::catch_unwind(|| {
        let _device = LoopDevice::attach(&file);
        assert!(is_attached(&file));
        panic!("as a failing test does");
    });
    assert!(outcome.is_err());
    assert!(!is_attached(&file));
}

#[test]
fn many_loop_devices_are_attached_at_once() {
    let scratch = Scratch::new();
    let files: Vec<PathBuf> =
        (0..20).map(|n| scratch.sparse_file(&format!("file{n}"), 1 << 20)).collect();
    let attach = |file: &PathBuf| LoopDevice::attach(file);
    let devices: Vec<LoopDevice> = std::thread::scope(|scope| {
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(|| attach(file))).collect();
        threads.into_iter().map(|thread| thread.join().expect("attached")).collect()
    });
    let mut nodes: Vec<&Path> = devices.iter().map(LoopDevice::path).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), files.len());
    drop(devices);
    assert!(!files.iter().any(|file| is_attached(file)));
}

#[test]
fn a_mount_and_its_devices_are_undone_when_a_test_panics() {
    let image = KernelImage::build(&ImageSpec::new("undone"), &Content::new(1));
    let mut point = PathBuf::new();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mount = image.mount("");
        mount.path().clone_into(&mut point);
        assert!(is_mounted(&point) && is_attached(&image.devices()[0]));
        panic!("as a failing test does");
    }));
    assert!(outcome.is_err());
    assert!(!is_mounted(&point) && !point.exists());
    assert!(!is_attached(&image.devices()[0]));
}

#[test]
fn a_refused_mount_reports_the_kernels_messages_and_leaves_nothing() {
    let scratch = Scratch::new();
    let file = scratch.sparse_file("no-btrfs", 64 << 20);
    let error =
        KernelMount::try_open(std::slice::from_ref(&file), "ro").expect_err("no superblock");
    assert!(error.to_string().contains("mount"), "{error}");
    assert!(!is_attached(&file));
}

#[test]
fn a_folder_of_scratch_files_goes_with_its_guard() {
    let scratch = Scratch::new();
    let file = scratch.sparse_file("file", 5);
    assert_eq!(std::fs::metadata(&file).expect("made").len(), 5);
    drop(scratch);
    assert!(!file.exists());
}
