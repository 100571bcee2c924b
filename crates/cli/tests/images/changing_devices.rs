//! Devices that are added, removed and resized, of images and of what the kernel has mounted.

use std::fs;
use std::path::Path;

use larder_testkit::command::run;
use larder_testkit::{KernelMount, LoopDevice, Scratch, oracle};

use crate::support::{fail, larder, succeed};

const MIB: u64 = 1 << 20;

/// An image with a file, and its path in text.
fn image(scratch: &Scratch) -> String {
    let image = scratch.sparse_file("first.img", 512 * MIB).display().to_string();
    succeed(&format!("mkfs -q {image}"));
    fs::write(scratch.path().join("file"), vec![7; 20 << 20]).unwrap();
    succeed(&format!("cp {} {image}:/file", scratch.path().join("file").display()));
    image
}

fn assert_sound(images: &[&str]) {
    let images: Vec<_> = images.iter().map(Into::into).collect();
    oracle::check(&images, true).unwrap_or_else(|error| panic!("{error}"));
    let mount = KernelMount::open(&images, "ro");
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), vec![7; 20 << 20]);
}

fn len_bytes(path: &str) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn devices_are_added_and_removed() {
    let scratch = Scratch::new();
    let first = image(&scratch);
    let second = scratch.path().join("second.img").display().to_string();
    let missing = fail(&format!("device add {second} {first}"));
    assert!(missing.contains("second.img"), "{missing}");
    succeed(&format!("device add --create 600M {second} {first}"));
    assert_eq!(len_bytes(&second), 600 * MIB);
    assert_sound(&[&first, &second]);
    let used = fail(&format!("device add {second} {first}"));
    assert!(used.contains("second.img"), "{used}");
    // By its path and by its id; both by one of the devices.
    succeed(&format!("device remove {first} {second}"));
    assert_sound(&[&second]);
    assert!(oracle::dump_super(Path::new(&first)).is_err(), "its superblocks are gone");
    succeed(&format!("device add {first} {second}"));
    let shown = succeed(&format!("filesystem show {first}"));
    assert!(shown.contains("devid    2") && shown.contains("devid    3"), "{shown}");
    succeed(&format!("device delete 2 {first}"));
    assert_sound(&[&first]);
    let only = fail(&format!("device remove 3 {first}"));
    assert!(only.contains("only device"), "{only}");
    let unknown = fail(&format!("device remove 9 {first}"));
    assert!(unknown.contains("9: no device of this file system"), "{unknown}");
    // What a device has is not overwritten by chance.
    succeed(&format!("mkfs -q {second}"));
    let occupied = fail(&format!("device add {second} {first}"));
    assert!(occupied.contains("-f"), "{occupied}");
    succeed(&format!("device add -f {second} {first}"));
    assert_sound(&[&first, &second]);
}

#[test]
fn a_missing_device_is_removed() {
    let scratch = Scratch::new();
    let images = ["a", "b", "c"].map(|name| scratch.sparse_file(name, 512 * MIB));
    let [a, b, c] = images.each_ref().map(|image| image.display().to_string());
    succeed(&format!("mkfs -q -d raid1 -m raid1 {a} {b} {c}"));
    fs::write(scratch.path().join("file"), vec![7; 20 << 20]).unwrap();
    succeed(&format!("cp {} {a}:/file", scratch.path().join("file").display()));
    fs::remove_file(&b).unwrap();
    succeed(&format!("device remove --degraded missing {a}"));
    assert_sound(&[&a, &c]);
}

#[test]
fn images_get_other_sizes() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let resized = succeed(&format!("filesystem resize +512M {image}"));
    let expected = format!("Resize device id 1 ({image}) from 512.00MiB to 1.00GiB\n");
    assert_eq!(resized, expected);
    assert_eq!(len_bytes(&image), 1 << 30);
    assert_sound(&[&image]);
    succeed(&format!("filesystem resize 1:400M {image}"));
    assert_eq!(len_bytes(&image), 400 * MIB);
    assert_sound(&[&image]);
    let too_small = fail(&format!("filesystem resize 30M {image}"));
    assert!(too_small.contains("No space left on device"), "{too_small}");
    assert_eq!(len_bytes(&image), 400 * MIB);
    // A file that has become longer.
    fs::File::options().write(true).open(&image).unwrap().set_len(700 * MIB).unwrap();
    let max = succeed(&format!("filesystem resize max {image}"));
    assert!(max.ends_with("from 400.00MiB to max\n"), "{max}");
    assert_sound(&[&image]);
    for (size, reason) in [
        ("2:max", "there is no device 2"),
        ("-1T", "less than nothing"),
        ("1:cold", "'cold' is not a size"),
        ("one:1G", "'one' is no device id"),
    ] {
        let refused = fail(&format!("filesystem resize {size} {image}"));
        assert!(refused.contains(reason), "{refused}");
    }
    assert_sound(&[&image]);
}

#[test]
fn the_disk_in_a_qcow2_image_keeps_its_size() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let disk = scratch.path().join("disk.qcow2").display().to_string();
    run("qemu-img", ["convert", "-f", "raw", "-O", "qcow2", &image, &disk]).unwrap();
    let longer = fail(&format!("filesystem resize +1G {disk}"));
    assert!(longer.contains("has only 536870912 bytes, and keeps them"), "{longer}");
    succeed(&format!("filesystem resize 400M {disk}"));
    succeed(&format!("filesystem resize max {disk}"));
    succeed(&format!("check --check-data-csum {disk}"));
}

#[test]
fn the_kernel_changes_the_devices_of_its_mounts() {
    let scratch = Scratch::new();
    let first = image(&scratch);
    let mount = KernelMount::open(&[first.into()], "");
    let path = mount.path().display();
    let second = LoopDevice::attach(&scratch.sparse_file("second.img", 512 * MIB));
    let device = second.path().display();
    succeed(&format!("device add {device} {path}"));
    let resized = succeed(&format!("filesystem resize 2:400M {path}"));
    assert!(
        resized.contains("Resize device id 2") && resized.contains("to 400.00MiB"),
        "{resized}"
    );
    let shown = run("btrfs", ["filesystem", "show", &path.to_string()]).unwrap();
    assert!(shown.contains("devid    2 size 400.00MiB"), "{shown}");
    succeed(&format!("filesystem resize 2:max {path}"));
    succeed(&format!("device remove 1 {path}"));
    let shown = run("btrfs", ["filesystem", "show", &path.to_string()]).unwrap();
    assert!(shown.contains("Total devices 1") && shown.contains("size 512.00MiB"), "{shown}");
    let refused = fail(&format!("device remove {device} {path}"));
    assert!(refused.contains(&device.to_string()), "{refused}");
}

/// For people who ship images.
#[test]
fn an_image_gets_as_small_as_it_can() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    succeed(&format!("filesystem resize 4G {image}"));
    let random: Vec<u8> =
        (0..30_u32 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    fs::write(scratch.path().join("random"), random).unwrap();
    succeed(&format!("cp {} {image}:/random", scratch.path().join("random").display()));
    let said = succeed(&format!("filesystem resize min {image}"));
    assert!(said.starts_with("Resize device id 1 (") && said.ends_with("MiB\n"), "{said}");
    let least = len_bytes(&image);
    assert!(least < 75 * MIB, "{least} bytes with 50 MiB of data");
    assert_sound(&[&image]);
    succeed(&format!("image shrink {image}"));
    assert!(len_bytes(&image) <= least, "{}", len_bytes(&image));
    succeed(&format!("filesystem resize +300M {image}"));
    succeed(&format!("cp {image}:/random {image}:/again"));
    assert_sound(&[&image]);
    let none = fail(&format!("filesystem resize cancel {image}"));
    assert!(none.contains("has no resize to cancel"), "{none}");
    let disk = scratch.path().join("disk.qcow2").display().to_string();
    run("qemu-img", ["convert", "-f", "raw", "-O", "qcow2", &image, &disk]).unwrap();
    fs::remove_file(&image).unwrap();
    let kept = larder(["image", "shrink", &disk]);
    let kept = String::from_utf8_lossy(&kept.stderr).into_owned();
    assert!(kept.contains("keeps its length"), "{kept}");
    succeed(&format!("check --check-data-csum {disk}"));
}
