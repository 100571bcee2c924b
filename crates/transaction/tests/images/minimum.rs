//! The file system on a device gets as small as it can: the kernel mounts it, finds everything,
//! grows it again and goes on.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_power_cuts::{assert_sound, load, survival};
use larder_test_devices::{Event, Recording};
use larder_testkit::command::run;
use larder_testkit::{
    Content, ImageSpec, KernelImage, KernelMount, Manifest, Profile, Scratch, oracle,
};
use larder_transaction::DeviceProgress;

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
        let used: u64 = manager
            .space()
            .groups()
            .iter()
            .map(|group| group.used() * group.chunk().profile().copies())
            .sum();
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
    let (mut random, mut cuts) = (Random(seed), 0);
    let mut replay = recording.replay();
    while let Some(entry) = replay.step() {
        let one_in = if entry.event == Event::Flush { 1 } else { 24 };
        if replay.position() < begun || random.below(one_in) >= larder_testkit::effort() {
            continue;
        }
        let what = format!("at {}", replay.position());
        let devices: Vec<MemoryDevice> = replay.power_cut(survival(random.next()));
        assert_sound(&devices, &what);
        let devices = devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>);
        let manager = open_devices(devices.collect()).unwrap();
        assert_eq!(names(&manager, "larder").unwrap(), files.sorted(), "{what}");
        manager.minimize_device(1, &go_on).unwrap();
        cuts += 1;
    }
    println!("{cuts} power cuts");
    assert!(cuts > 20, "{cuts}");
}
