//! Images of virtual machines in the format qcow2. They come from qemu-img, which also judges them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_testkit::{KernelMount, Scratch, effort, oracle, seed};

use crate::support::{larder, succeed};

const PROGRAM: &str = env!("CARGO_BIN_EXE_larder");

#[track_caller]
fn qemu_img(folder: &Path, line: &str) {
    let mut qemu_img = Command::new("qemu-img");
    let output = qemu_img.args(line.split(' ')).current_dir(folder).output();
    let output = output.expect("qemu-img is installed");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "qemu-img {line}: {said}");
}

/// A folder, and the path of an image in it.
fn scratch() -> (Scratch, String) {
    let scratch = Scratch::new();
    let image = scratch.path().join("disk.qcow2");
    let image = image.to_str().expect("paths here are text").to_owned();
    (scratch, image)
}

/// Checks the image `name` with qemu-img, and what it contains with btrfs-progs. Returns that as a
/// file.
#[track_caller]
fn content(folder: &Path, name: &str) -> PathBuf {
    qemu_img(folder, &format!("check -q {name}"));
    qemu_img(folder, &format!("convert -O raw {name} raw"));
    let raw = folder.join("raw");
    oracle::check(std::slice::from_ref(&raw), true).unwrap_or_else(|error| panic!("{error}"));
    raw
}

#[test]
fn a_file_system_in_an_image_is_the_kernels_too() {
    let (scratch, image) = scratch();
    qemu_img(scratch.path(), "create -q -f qcow2 disk.qcow2 512M");
    succeed(&format!("mkfs -q {image}"));
    let refused = larder(["mkfs", &image]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("holds a btrfs file system"));
    succeed(&format!("cp {PROGRAM} {image}:/program"));
    succeed(&format!("cp {PROGRAM} {image}:/again"));
    succeed(&format!("rm {image}:/program"));
    succeed(&format!("check --check-data-csum {image}"));
    let raw = content(scratch.path(), "disk.qcow2");
    let kernel = KernelMount::open(&[raw], "ro");
    let copy = fs::read(kernel.path().join("again")).expect("it is there");
    assert!(copy == fs::read(PROGRAM).expect("it is there"));
}

#[test]
fn backing_files_are_read_and_never_written() {
    let (scratch, image) = scratch();
    let (folder, base) = (scratch.path(), scratch.path().join("base"));
    succeed(&format!("mkfs -q -b 512M {}", base.display()));
    let program = scratch.path().join("program");
    fs::write(&program, &fs::read(PROGRAM).expect("it is there")[..3 << 20])
        .expect("it is written");
    let program = program.display();
    succeed(&format!("cp {program} {}:/program", base.display()));
    qemu_img(folder, "convert -c -O qcow2 base compressed");
    for (name, format) in [("base", "raw"), ("compressed", "qcow2")] {
        let before = fs::read(folder.join(name)).expect("it is there");
        qemu_img(folder, &format!("create -q -f qcow2 -b {name} -F {format} disk.qcow2"));
        succeed(&format!("mkdir {image}:/new"));
        succeed(&format!("cp {program} {image}:/new/program"));
        succeed(&format!("check --check-data-csum {image}"));
        assert_eq!(succeed(&format!("ls {image}:/")), "new\nprogram\n");
        assert!(fs::read(folder.join(name)).expect("it is there") == before, "{name} changed");
        content(folder, "disk.qcow2");
    }
    // In place of its compressed data.
    succeed(&format!("mkdir {}/compressed:/new", folder.display()));
    content(folder, "compressed");
}

#[test]
fn a_partition_in_an_image_is_found() {
    let (scratch, image) = scratch();
    let disk = scratch.sparse_file("disk", 512 << 20);
    let mut sfdisk = Command::new("sfdisk");
    let table = Stdio::from(File::open(table(&scratch)).expect("it is there"));
    assert!(sfdisk.arg("--quiet").arg(&disk).stdin(table).status().expect("it starts").success());
    qemu_img(scratch.path(), "convert -O qcow2 disk disk.qcow2");
    succeed(&format!("mkfs -q --partition 2 {image}"));
    succeed(&format!("mkdir {image}:/found"));
    assert_eq!(succeed(&format!("ls {image}:/")), "found\n");
    qemu_img(scratch.path(), "check -q disk.qcow2");
    qemu_img(scratch.path(), "convert -O raw disk.qcow2 raw");
    assert_eq!(succeed(&format!("ls {}/raw:/", scratch.path().display())), "found\n");
}

fn table(scratch: &Scratch) -> PathBuf {
    let table = scratch.path().join("table");
    fs::write(&table, "label: gpt\nsize=100M\nsize=300M\n").expect("it is written");
    table
}

#[test]
fn what_cannot_be_opened_is_said() {
    let (scratch, image) = scratch();
    let folder = scratch.path();
    let message = || {
        let output = larder(["ls", &format!("{image}:/")]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let create = |options: &str| qemu_img(folder, &format!("create -q -f qcow2 {options} 64M"));
    create("-o data_file=data disk.qcow2");
    assert!(message().contains("its data is in another file"));
    create("disk.qcow2");
    let file = File::options().write(true).open(&image).expect("it is there");
    file.write_all_at(&2_u32.to_be_bytes(), 32).expect("it is written");
    assert!(message().contains("it is encrypted"), "{}", message());
    create("disk.qcow2");
    assert!(message().contains("no btrfs superblock"));
    qemu_img(folder, "rebase -q -u -b disk.qcow2 -F qcow2 disk.qcow2");
    assert!(message().contains("chain of backing files is too long"), "{}", message());
    qemu_img(folder, "rebase -q -u -b pipe -F raw disk.qcow2");
    assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    assert!(message().contains("neither a regular file nor a block device"), "{}", message());
    // Without counts of references a writer would overwrite tables.
    create("disk.qcow2");
    succeed(&format!("mkfs -q {image} -b 64M -M"));
    let file = File::options().write(true).open(&image).expect("it is there");
    file.write_all_at(&[0; 4], 56).expect("it is written");
    let output = larder(["mkdir", &format!("{image}:/d")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("'qemu-img check -r all' repairs them"), "{said}");
    create("disk.qcow2");
    File::options().write(true).open(&image).unwrap().set_len(100).unwrap();
    assert!(message().contains("as a qcow2 image"), "{}", message());
}

#[test]
fn damaged_images_make_no_panic() {
    let (scratch, image) = scratch();
    qemu_img(scratch.path(), "create -q -f qcow2 -o cluster_size=4k disk.qcow2 256M");
    succeed(&format!("mkfs -q {image}"));
    let sound = fs::read(&image).expect("it is there");
    let mut state = seed(7);
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..60 * effort() {
        let mut damaged = sound.clone();
        // The header, or the tables after it.
        let (from, len) = if round % 2 == 0 { (0, 112) } else { (4096, 64 << 10) };
        for _ in 0..=random(4) {
            let at = from + random(len);
            damaged[at] = [0, 1, 0x7F, 0x80, 0xFF][random(5)];
        }
        fs::write(&image, &damaged).expect("it is written");
        for words in [&["check", &image][..], &["mkdir", &format!("{image}:/d")]] {
            let output = larder(words);
            let code = output.status.code();
            assert!(code.is_some_and(|code| code < 3), "{round} {words:?}: {output:?}");
        }
    }
}

#[test]
fn writes_through_many_threads_are_where_they_belong() {
    let (scratch, image) = scratch();
    qemu_img(scratch.path(), "create -q -f qcow2 disk.qcow2 1G");
    // Threads of mkfs write data side by side.
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).expect("it is new");
    for number in 0..40_u8 {
        let file = File::create(tree.join(number.to_string())).expect("it is new");
        for block in 0..40_u8 {
            file.write_all_at(&vec![number ^ block; 20_000], u64::from(block) * 20_000).unwrap();
        }
    }
    succeed(&format!("mkfs -q --rootdir {} {image}", tree.display()));
    succeed(&format!("check --check-data-csum {image}"));
    content(scratch.path(), "disk.qcow2");
}
