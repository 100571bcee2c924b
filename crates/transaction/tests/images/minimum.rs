//! The file system on a device gets as small as it can: the kernel mounts it, finds everything,
//! grows it again and goes on.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_power_cuts::{assert_sound, load, survival};
use larder_test_devices::Recording;
use larder_testkit::command::run;
use larder_testkit::{
    Content, ImageSpec, KernelImage, KernelMount, Manifest, Profile, Scratch, oracle,
};
use larder_transaction::DeviceProgress;

use crate::cuts::positions;
use crate::support::{Files, Random, names, open, open_devices};

const MIB: u64 = 1 << 20;

fn go_on(_: DeviceProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn copy(file: &Path, folder: &Path) -> std::path::PathBuf {
    let copy = folder.join("image");
    run("cp", ["--sparse=always".as_ref(), file.as_os_str(), copy.as_os_str()]).unwrap();
    copy
}

#[test]
fn an_image_gets_small_and_grows_again() {
    for (data, metadata) in [(Profile::Single, Profile::Dup), (Profile::Dup, Profile::Single)] {
        let spec = ImageSpec::new("one-device").devices(&[4000 * MIB]).profiles(data, metadata);
        let image = KernelImage::build(&spec, &Content::new(larder_testkit::seed(7)));
        let before = Manifest::of_tree(image.mount("subvolid=5,noatime").path());
        let scratch = Scratch::new();
        let file = copy(&image.devices()[0], scratch.path());
        let manager = open(std::slice::from_ref(&file));
        let used = used_bytes(&manager);
        let mut files = Files::new("larder", 7);
        files.churn(&manager, 40).unwrap();
        manager.commit().unwrap();
        let (total_bytes, moved) = manager.minimize_device(1, &go_on).unwrap();
        println!("{used} bytes used, {total_bytes} bytes left, {moved:?}");
        assert!(total_bytes < 2 * used + 80 * MIB, "{total_bytes} bytes for {used}");
        drop(manager);
        let file_of = File::options().write(true).open(&file).unwrap();
        file_of.set_len(total_bytes).unwrap();
        let files_of = std::slice::from_ref(&file);
        oracle::check(files_of, true).unwrap_or_else(|error| panic!("{error}"));
        file_of.set_len(total_bytes + 500 * MIB).unwrap();
        let mount = KernelMount::open(files_of, "subvolid=5,noatime");
        let found = Manifest::of_tree(mount.path());
        for (path, entry) in before.entries.iter().filter(|(path, _)| !path.is_empty()) {
            assert_eq!(found.entries.get(path), Some(entry), "{}", path.escape_ascii());
        }
        oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
        let path = mount.path().display().to_string();
        run("btrfs", ["filesystem", "resize", "max", &path]).unwrap();
        std::fs::write(mount.path().join("more"), vec![7; 100 * MIB as usize]).unwrap();
        drop(mount);
        oracle::check(files_of, true).unwrap_or_else(|error| panic!("{error}"));
        let manager = open(files_of);
        assert_eq!(names(&manager, "larder").unwrap(), files.sorted());
    }
}

/// Bytes on devices that extents use.
fn used_bytes(manager: &larder_transaction::TransactionManager) -> u64 {
    let groups = manager.space().groups();
    groups.iter().map(|group| group.used() * group.chunk().profile().copies()).sum()
}

/// Nothing but 5 % is left over, whatever lay free between the extents.
#[test]
fn what_is_free_between_files_goes() {
    let seed = larder_testkit::seed(11);
    for (data, metadata) in [(Profile::Single, Profile::Dup), (Profile::Dup, Profile::Single)] {
        let spec = ImageSpec::new("one-device").devices(&[1000 * MIB]).profiles(data, metadata);
        let image = KernelImage::build(&spec, &Content::new(seed));
        let scratch = Scratch::new();
        let file = copy(&image.devices()[0], scratch.path());
        let files = std::slice::from_ref(&file);
        let mount = KernelMount::open(files, "subvolid=5,noatime");
        let mut random = Random(seed);
        let path = |number: u64| mount.path().join(format!("file {number}"));
        for number in 0..2000 {
            let len_bytes = [3000, 40_000, 90_000, 200_000][random.below(4) as usize];
            let bytes: Vec<u8> =
                (0..len_bytes / 8).flat_map(|_| random.next().to_le_bytes()).collect();
            std::fs::write(path(number), bytes).unwrap();
        }
        run("sync", ["-f".as_ref(), mount.path().as_os_str()]).unwrap();
        for number in (0..2000).filter(|_| random.below(5) < 3) {
            std::fs::remove_file(path(number)).unwrap();
        }
        let before = Manifest::of_tree(mount.path());
        drop(mount);
        let manager = open(files);
        let (total_bytes, moved) = manager.minimize_device(1, &go_on).unwrap();
        let used = used_bytes(&manager);
        println!("{used} bytes used, {total_bytes} bytes left, {moved:?}");
        assert!(total_bytes * 100 <= used * 105, "{total_bytes} bytes for {used}");
        drop(manager);
        File::options().write(true).open(&file).unwrap().set_len(total_bytes).unwrap();
        oracle::check(files, true).unwrap_or_else(|error| panic!("{error}"));
        let mount = KernelMount::open(files, "subvolid=5,noatime");
        let found = Manifest::of_tree(mount.path());
        assert_eq!(found.entries, before.entries);
        oracle::scrub(&mount).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn power_cuts_while_an_image_gets_small() {
    let seed = larder_testkit::seed(3);
    let spec = ImageSpec::new("one-device").devices(&[900 * MIB]);
    let image = KernelImage::build(&spec, &Content::new(seed));
    let base = load(&image.devices()[0]);
    let recording = Recording::new();
    let manager = open_devices(vec![Arc::new(recording.attach(&base)) as Arc<dyn Device>]).unwrap();
    let mut files = Files::new("larder", seed);
    files.churn(&manager, 30).unwrap();
    manager.commit().unwrap();
    let begun = recording.position();
    manager.minimize_device(1, &go_on).unwrap();
    drop(manager);
    let mut random = Random(seed);
    let mut replay = recording.replay();
    let positions = positions(&recording, begun + 1..recording.position() + 1, 24, &mut random);
    for position in &positions {
        replay.advance_to(*position);
        let what = format!("at {position}");
        let devices: Vec<MemoryDevice> = replay.power_cut(survival(random.next()));
        assert_sound(&devices, &what);
        let devices = devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>);
        let manager = open_devices(devices.collect()).unwrap();
        assert_eq!(names(&manager, "larder").unwrap(), files.sorted(), "{what}");
        manager.minimize_device(1, &go_on).unwrap();
    }
    println!("shrink: {} power cuts", positions.len());
}
