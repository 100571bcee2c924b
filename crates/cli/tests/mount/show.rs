//! `filesystem show` of all that there is, and what it says of images that are mounted.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use larder_testkit::{ImageSpec, KernelImage, LoopDevice, Mount, Profile, Scratch};
use rustix::fs::FallocateFlags;

use crate::support::{Mounted, larder, succeed};

/// The part about one file system in what `program` prints with `words`; none if there is none.
/// Other tests have file systems too, which may be gone before they are opened: then `btrfs` shows
/// none of those that are not mounted, and is asked again.
fn part_of(mut program: Command, words: &str, uuid: &str) -> Option<String> {
    program.args(words.split(' '));
    for _ in 0..20 {
        let output = program.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        // Warnings of btrfs may be about any of them.
        let lines: Vec<&str> =
            said.lines().filter(|line| !line.starts_with("warning, device")).collect();
        let part = lines.split(|line| line.is_empty()).find(|part| part.concat().contains(uuid));
        if part.is_some() || output.status.success() || words.ends_with(" -m") {
            return part.map(|part| part.join("\n"));
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{program:?} fails each time");
}

fn btrfs() -> Command {
    Command::new("btrfs")
}

fn uuid_of(image: &KernelImage) -> String {
    let said = succeed(larder().args(["filesystem", "show"]).arg(&image.devices()[0]));
    said.split("uuid: ").nth(1).unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn all_are_shown_as_btrfs_shows_them() {
    let spec = ImageSpec::new("show-all").label("jam and tea").devices(&[256 << 20; 2]);
    let image = KernelImage::empty(&spec);
    let uuid = uuid_of(&image);

    let mount = image.mount("");
    mount.sync();
    let device = mount.devices().next().unwrap().display().to_string();
    for words in ["filesystem show", "filesystem show -m", "filesystem show -d"] {
        let seen = part_of(larder(), words, &uuid);
        assert_eq!(seen, part_of(btrfs(), words, &uuid), "{words}");
        assert!(seen.is_some_and(|part| part.contains("'jam and tea'")), "{words}");
    }
    for name in [&uuid, &device] {
        let words = format!("filesystem show {name}");
        let seen = part_of(larder(), &words, &uuid);
        assert_eq!(seen, part_of(btrfs(), &words, &uuid), "{words}");
        assert!(seen.is_some(), "{words}");
    }
    let seen = succeed(larder().args(["filesystem", "show", "jam and tea"]));
    assert_eq!(seen, succeed(btrfs().args(["filesystem", "show", "jam and tea"])));
    drop(mount);

    let devices: Vec<LoopDevice> =
        image.devices().iter().map(|path| LoopDevice::attach(path)).collect();
    for words in ["filesystem show", "filesystem show -d"] {
        let seen = part_of(larder(), words, &uuid);
        assert_eq!(seen, part_of(btrfs(), words, &uuid), "{words}");
        assert!(seen.is_some_and(|part| part.contains(devices[1].path().to_str().unwrap())));
    }
    assert_eq!(part_of(larder(), "filesystem show -m", &uuid), None);
    assert_eq!(part_of(btrfs(), "filesystem show -m", &uuid), None);
    let json = succeed(larder().args(["--format", "json", "filesystem", "show", &uuid]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["filesystem-list"][0]["uuid"], uuid.as_str());
}

#[test]
fn missing_devices_are_shown_as_btrfs_shows_them() {
    let spec = ImageSpec::new("show-missing").devices(&[256 << 20; 2]);
    let image = KernelImage::empty(&spec.profiles(Profile::Raid1, Profile::Raid1));
    let uuid = uuid_of(&image);
    let device = LoopDevice::attach(&image.devices()[0]);
    let path = device.path().to_str().unwrap();
    let same = |words: &str| {
        let ours = succeed(larder().args(words.split(' ')));
        // The name is that of a device which the kernel has known, and otherwise none.
        let missing = if words.starts_with("filesystem show") { "" } else { "missing" };
        let theirs = succeed(btrfs().args(words.split(' '))).replace("<missing disk>", missing);
        let theirs = theirs.lines().filter(|line| !line.starts_with("warning, device"));
        assert_eq!(ours.lines().collect::<Vec<_>>(), theirs.collect::<Vec<_>>(), "{words}");
        ours
    };
    for name in [path, &uuid] {
        assert!(same(&format!("filesystem show {name}")).contains("*** Some devices missing"));
    }
    let scratch = Scratch::new();
    let mount = Mount::new(device.path(), scratch.path(), "degraded").unwrap();
    let point = mount.path().display();
    assert!(same(&format!("filesystem show {point}")).contains("MISSING"));
    for command in ["filesystem usage", "filesystem usage -T", "device usage", "device stats"] {
        same(&format!("{command} {point}"));
    }
}

#[test]
fn what_new_chunks_take_is_shown_at_once() {
    let mut mounted = Mounted::new();
    mounted.shell("head -c 600M /dev/urandom > file");
    succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
    let shown = |command: &str, place| {
        let said = succeed(larder().args(["filesystem", command, "--raw"]).arg(place));
        let of_devices = ["devid", "Device", "/"];
        let lines = said
            .lines()
            .filter(|line| of_devices.iter().any(|start| line.trim_start().starts_with(start)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let of = |place: PathBuf| [shown("show", place.clone()), shown("usage", place)];
    let of_mount = of(mounted.path());
    mounted.unmount();
    let of_image = of(mounted.image());
    assert_eq!(of_mount, of_image);
    assert!(of_image[1].len() > 5, "{of_image:?}");
}

#[test]
fn names_that_nothing_has_are_errors() {
    for name in ["of-nothing-at-all", "00000000-0000-0000-0000-000000000001"] {
        for option in ["-m", "-d"] {
            let output = larder().args(["filesystem", "show", option, name]).output().unwrap();
            assert_eq!(output.status.code(), Some(1));
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("nor the uuid or label"), "{said}");
        }
    }
}

#[test]
fn all_with_a_label_are_shown() {
    let image = || KernelImage::empty(&ImageSpec::new("show-twins").label("twins-of-bread"));
    let images = [image(), image()];
    let uuids = images.each_ref().map(uuid_of);
    let _devices = images.each_ref().map(|image| LoopDevice::attach(&image.devices()[0]));
    for uuid in &uuids {
        let words = "filesystem show twins-of-bread";
        let seen = part_of(larder(), words, uuid);
        assert!(seen.is_some(), "{uuid}");
        assert_eq!(seen, part_of(btrfs(), words, uuid));
    }
}

/// A mount knows what no commit has written to the image yet.
#[test]
fn an_image_that_is_mounted_is_shown_by_its_mount() {
    let mut mounted = Mounted::new();
    mounted.shell("head -c 5M /dev/urandom > file");
    succeed(larder().args(["filesystem", "label"]).arg(mounted.path()).arg("uncommitted"));
    let uuid = {
        let shown = succeed(larder().args(["filesystem", "show"]).arg(mounted.path()));
        assert!(shown.contains("'uncommitted'"), "{shown}");
        shown.split("uuid: ").nth(1).unwrap().lines().next().unwrap().to_owned()
    };
    for words in ["filesystem show", "filesystem show -m"] {
        let part = part_of(larder(), words, &uuid).expect(words);
        assert!(part.contains("'uncommitted'"), "{part}");
        assert!(part.contains(mounted.image().to_str().unwrap()), "{part}");
    }
    succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
    for command in ["show", "df", "label", "usage"] {
        let of = |place| {
            let output = larder().args(["filesystem", command]).arg(place).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{command}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(of(mounted.image()), of(mounted.path()), "{command}");
    }
    let reserve = succeed(larder().args(["filesystem", "df"]).arg(mounted.path()));
    assert!(reserve.lines().last().unwrap().starts_with("GlobalReserve, single: total="));
    mounted.unmount();
    let shown = succeed(larder().args(["filesystem", "df"]).arg(mounted.image()));
    assert!(!shown.contains("GlobalReserve"), "{shown}");
    mounted.check();
}

/// What is wrong with a file system does not matter to a command that named another.
#[test]
fn others_that_cannot_be_opened_are_not_spoken_of() {
    let image = KernelImage::empty(&ImageSpec::new("show-sound").label("sound-and-well"));
    let broken = KernelImage::empty(&ImageSpec::new("show-broken").label("torn-to-pieces"));
    let path = &broken.devices()[0];
    overwrite_trees(path);
    let _devices = [LoopDevice::attach(&image.devices()[0]), LoopDevice::attach(path)];
    let show = |name: &str| larder().args(["filesystem", "show", name]).output().unwrap();
    let output = show("sound-and-well");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
    let output = show("of-nothing-at-all");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((said.matches("ERROR").count(), said.lines().count()), (1, 1), "{said}");
    let output = show("torn-to-pieces");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("ERROR: ") && said.contains("/dev/loop"), "{said}");
}

/// Leaves nothing but the superblocks.
fn overwrite_trees(image: &Path) {
    let file = File::options().write(true).open(image).unwrap();
    for (start, end) in [(1 << 20, 64 << 20), (65 << 20, image.metadata().unwrap().len())] {
        rustix::fs::fallocate(
            &file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            start,
            end - start,
        )
        .unwrap();
    }
}
