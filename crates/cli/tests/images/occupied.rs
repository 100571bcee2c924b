//! Content that mkfs does not overwrite unless it is told to.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use larder_testkit::{LoopDevice, Scratch};

use crate::partitions::partition;
use crate::support::{fail, succeed};

const LEN_BYTES: u64 = 400 << 20;

/// Writes bytes at an offset.
fn put(path: &Path, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).expect("it is there");
    file.write_all_at(bytes, offset).expect("it is written");
}

/// The superblock of a member of an MD array, at the end of a device of this length.
fn md(path: &Path, is_old: bool, len_bytes: u64) {
    let mut block = [0_u8; 4096];
    block[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    if is_old {
        // Metadata 0.90.
        block[8..12].copy_from_slice(&90_u32.to_le_bytes());
        block[20..24].copy_from_slice(&7_u32.to_le_bytes());
        put(path, (len_bytes & !0xffff) - 0x1_0000, &block);
        return;
    }
    // Metadata 1.0.
    let sector = (len_bytes / 512 - 16) & !7;
    block[4] = 1;
    block[16..32].fill(7);
    block[144..152].copy_from_slice(&sector.to_le_bytes());
    let words = block[..256].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let sum: u64 = words.map(u64::from).sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    block[216..220].copy_from_slice(&(sum as u32).to_le_bytes());
    put(path, sector * 512, &block);
}

fn run(program: &str, options: &str, path: &Path) {
    let mut command = Command::new(program);
    let output = command.args(options.split_whitespace()).arg(path).output().expect("it starts");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Fills a device, and says what mkfs must call it.
type Fill = (&'static str, fn(&Path, u64));

const FILLS: [Fill; 12] = [
    ("linux_raid_member", |path, len_bytes| md(path, true, len_bytes)),
    ("linux_raid_member", |path, len_bytes| md(path, false, len_bytes)),
    ("LVM", |path, _| {
        let mut label = [0; 512];
        label[..8].copy_from_slice(b"LABELONE");
        label[8] = 1;
        label[20] = 32;
        label[24..32].copy_from_slice(b"LVM2 001");
        put(path, 512, &label);
    }),
    ("an encrypted volume", |path, _| put(path, 0, b"LUKS\xba\xbe\0\x01")),
    ("ZFS pool", |path, _| {
        put(path, 0x2_0000 + 3 * 1024, &0x00ba_b10c_u64.to_le_bytes());
    }),
    ("ext4", |path, _| run("mkfs.ext4", "-q", path)),
    ("an XFS file system", |path, _| run("mkfs.xfs", "-q", path)),
    ("swap space", |path, _| run("mkswap", "-q", path)),
    ("a btrfs file system", |path, _| run("mkfs.btrfs", "-q", path)),
    ("partition table (gpt)", |path, _| partition(path, "label: gpt\nsize=100M\n")),
    ("partition table (dos)", |path, _| partition(path, "label: dos\nsize=100M\n")),
    // libblkid alone knows it.
    ("minix", |path, _| {
        let mut block = [0_u8; 1024];
        for (at, number) in [(0, 64_u16), (2, 1000), (4, 1), (6, 1), (8, 20), (16, 0x137f)] {
            block[at..at + 2].copy_from_slice(&number.to_le_bytes());
        }
        block[12..16].copy_from_slice(&0x1008_1c00_u32.to_le_bytes());
        block[18] = 1;
        put(path, 1024, &block);
    }),
];

/// mkfs refuses the target, and changes nothing in the file.
#[track_caller]
fn assert_refused(line: &str, wanted: &str, file: &Path) {
    let before = edges(file);
    let said = fail(line);
    assert!(said.contains("holds") && said.contains(wanted), "{line}: {said}");
    assert!(edges(file) == before, "{line}: the file changed");
}

/// What a file begins and ends with, also the partition in it.
fn edges(file: &Path) -> [Vec<u8>; 3] {
    const EDGE_BYTES: u64 = 4 << 20;
    let file = File::open(file).expect("it opens");
    [0, LEN_BYTES - EDGE_BYTES, (321 << 20) - EDGE_BYTES].map(|offset| {
        let mut bytes = vec![0; EDGE_BYTES as usize];
        file.read_exact_at(&mut bytes, offset).expect("it is read");
        bytes
    })
}

#[test]
fn what_a_device_holds_is_not_overwritten() {
    for (wanted, fill) in FILLS {
        let scratch = Scratch::new();
        let file = scratch.sparse_file("file", LEN_BYTES);
        fill(&file, LEN_BYTES);
        assert_refused(&format!("mkfs -q {}", file.display()), wanted, &file);
        let device = LoopDevice::attach(&file);
        assert_refused(&format!("mkfs -q {}", device.path().display()), wanted, &file);
        drop(device);
        // Nothing of it is left for others to find.
        succeed(&format!("mkfs -q -f {}", file.display()));
        let mut blkid = Command::new("blkid");
        let found = blkid.args(["-p", "-o", "value", "-s", "TYPE"]).arg(&file).output();
        let found = found.expect("blkid starts").stdout;
        assert_eq!(String::from_utf8_lossy(&found), "btrfs\n", "after {wanted}");
    }
}

#[test]
fn what_a_partition_holds_is_not_overwritten() {
    const START: u64 = 1 << 20;
    const PART_BYTES: u64 = 320 << 20;
    for (wanted, fill) in FILLS.into_iter().filter(|(wanted, _)| !wanted.contains("table")) {
        let scratch = Scratch::new();
        let disk = scratch.sparse_file("disk", LEN_BYTES);
        partition(&disk, "label: gpt\nstart=1M, size=320M\n");
        let content = scratch.sparse_file("content", PART_BYTES);
        fill(&content, PART_BYTES);
        let bytes = fs::read(&content).expect("it is read");
        for (number, piece) in bytes.chunks(1 << 20).enumerate() {
            if piece.iter().any(|byte| *byte != 0) {
                put(&disk, START + (number << 20) as u64, piece);
            }
        }
        let named = format!("mkfs -q --partition 1 {}", disk.display());
        assert_refused(&named, wanted, &disk);
    }
}

#[test]
fn what_is_in_use_is_not_overwritten_at_all() {
    let scratch = Scratch::new();
    let file = scratch.sparse_file("file", LEN_BYTES);
    run("mkswap", "-q", &file);
    let device = LoopDevice::attach(&file);
    let shown = device.path().display().to_string();
    for (held, wanted) in [(&shown, "swap space"), (&file.display().to_string(), &*shown)] {
        run("swapon", "", device.path());
        let said = fail(&format!("mkfs -q -f {held}"));
        run("swapoff", "", device.path());
        assert!(said.contains(wanted), "{said}");
    }
    // Another program has claimed it.
    let claim = rustix::fs::open(
        device.path(),
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL,
        rustix::fs::Mode::empty(),
    );
    let claim = claim.expect("it is free");
    let said = fail(&format!("mkfs -q -f {shown}"));
    assert!(said.contains("opened for writing by another program"), "{said}");
    drop(claim);
    let attached = fail(&format!("mkfs -q -f {}", file.display()));
    assert!(attached.contains("attached as"), "{attached}");
}
