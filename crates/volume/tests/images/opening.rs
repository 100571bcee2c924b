//! Opening: successes, refusals and their messages.
//!
//! Needs root, loop devices and a kernel with btrfs.

use std::slice::from_ref;
use std::sync::Arc;

use larder_device::{Access, Device, FileDevice, MemoryDevice};
use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE, SYS_CHUNK_ARRAY_SIZE, Superblock};
use larder_format::{Logical, Physical, Profile};
use larder_test_devices::{Event as DeviceEvent, Recording};
use larder_testkit::{Content, Event, ImageSpec, KernelImage, damage, oracle};
use larder_volume::{OpenError, OpenOptions, Volume, scan, scan_copy};
use zerocopy::IntoBytes;

use crate::support::{Everything, MIB, devices, image, open, try_open};

const READ: OpenOptions = OpenOptions {
    write: false,
    degraded: false,
    superblock_copy: None,
    any_state: false,
    short_devices: false,
    rescue: larder_volume::Rescue::NONE,
    state: None,
    read_policy: larder_volume::ReadPolicy::Spread,
};
const WRITE: OpenOptions = OpenOptions { write: true, ..READ };

fn small(name: &str) -> KernelImage {
    KernelImage::build(&ImageSpec::new(name), &Content::new(1).all_checksummed())
}

#[track_caller]
fn refused(result: Result<Volume, OpenError>, why: &str) {
    let error = result.map(drop).expect_err(why).to_string();
    assert!(error.contains(why), "{error:?} does not say {why:?}");
}

#[test]
fn devices_come_in_any_order() {
    let image = image(larder_testkit::Profile::Raid10, 4);
    let wanted = Everything::read(&open(image.devices(), &READ));
    let mut paths = image.devices().to_vec();
    for _ in 0..4 {
        paths.rotate_left(1);
        let volume = open(&paths, &READ);
        let devids: Vec<u64> = volume.devices().iter().map(|device| device.devid()).collect();
        assert_eq!(devids, [1, 2, 3, 4]);
        assert_eq!(Everything::read(&volume), wanted);
    }
    let mut twice = image.devices().to_vec();
    twice.push(paths[0].clone());
    refused(try_open(&twice, &READ), "is given twice");
    let copy = image.duplicate();
    twice[4] = copy.devices()[0].clone();
    refused(try_open(&twice, &READ), "both are device 1: give one of them");
    let other = small("other");
    twice[4] = other.devices()[0].clone();
    refused(try_open(&twice, &READ), "is not a device of file system");
    refused(try_open(&[], &READ), "no devices were given");
}

#[test]
fn the_newest_sound_superblock_is_chosen() {
    let image = small("superblocks");
    let path = &image.devices()[0];
    let file = |access| FileDevice::open(path, access).expect("it opens");
    let found = scan(&file(Access::ReadOnly)).expect("it is btrfs");
    assert_eq!((found.copy, found.copies.len()), (0, 2), "256 MiB hold two copies");
    let generation = found.superblock.generation.get();

    // A copy that missed a commit does not count, even if it is the first.
    for (stale, offset) in OFFSETS.into_iter().enumerate().take(2) {
        let device = file(Access::ReadWrite);
        let mut superblock = scan_copy(&device, stale).expect("it is sound").superblock;
        superblock.generation = (generation - 1).into();
        superblock.update_checksum();
        let sound = superblock_bytes(&device, offset);
        device.write_at(superblock.as_bytes(), offset.0).expect("it writes");
        let found = scan(&device).expect("it is btrfs");
        assert_eq!((found.copy, found.superblock.generation.get()), (1 - stale, generation));
        device.write_at(&sound, offset.0).expect("it writes");
    }

    damage::zero_superblock(path, 0).expect("it is zeroed");
    let found = scan(&file(Access::ReadOnly)).expect("a copy is left");
    assert_eq!(found.copy, 1);
    let problem = found.copies[0].state.as_ref().expect_err("it was zeroed").to_string();
    assert!(problem.contains("no btrfs magic"), "{problem}");
    open(image.devices(), &READ);
    let first = OpenOptions { superblock_copy: Some(0), ..READ };
    refused(try_open(image.devices(), &first), "at 65536: superblock: no btrfs magic");
    open(image.devices(), &OpenOptions { superblock_copy: Some(1), ..READ });
    refused(
        try_open(image.devices(), &OpenOptions { superblock_copy: Some(2), ..READ }),
        "no btrfs superblock",
    );

    // Writing superblocks repairs the first one, and the kernel agrees.
    let volume = open(image.devices(), &WRITE);
    volume.write_superblocks(&volume.superblock()).expect("it writes");
    drop(volume);
    let found = scan(&file(Access::ReadOnly)).expect("it is btrfs");
    assert!(found.copies.iter().all(|copy| copy.state.as_ref().is_ok_and(|g| *g == generation)));
    oracle::check(image.devices(), true).unwrap_or_else(|error| panic!("{error}"));
    image.mount("");
}

fn superblock_bytes(device: &dyn Device, offset: Physical) -> Vec<u8> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(&mut bytes, offset.0).expect("it reads");
    bytes
}

#[test]
fn a_device_that_missed_commits_is_read_last() {
    let spec = ImageSpec::new("stale")
        .devices(&[256 * MIB; 2])
        .profiles(larder_testkit::Profile::Raid1, larder_testkit::Profile::Raid1)
        .then(Event::MissLastDevice);
    let image = KernelImage::build(&spec, &Content::new(7));
    let volume = open(image.devices(), &WRITE);
    let stale: Vec<bool> = volume.devices().iter().map(|device| device.is_stale()).collect();
    assert_eq!(stale, [false, true]);
    let wanted = Everything::read(&volume);
    assert_eq!(wanted.failures.messages, [""; 0], "the stale device is not asked");
    let stats = volume.stats();
    assert_eq!(stats.devices[1].reads, 0, "{stats:?}");
    // Even if it is preferred.
    drop(volume);
    let prefer = OpenOptions { read_policy: larder_volume::ReadPolicy::Prefer(2), ..WRITE };
    assert_eq!(Everything::read(&open(image.devices(), &prefer)), wanted);
}

#[test]
fn a_sprout_needs_its_seed() {
    let spec = ImageSpec::new("sprout").then(Event::Sprout(256 * MIB));
    let image = KernelImage::build(&spec, &Content::new(5).all_checksummed());
    let [seed, sprout] = image.devices() else { panic!("two devices") };
    let both = open(image.devices(), &WRITE);
    let seeds: Vec<bool> = both.devices().iter().map(|device| device.is_seed()).collect();
    assert_eq!(seeds, [true, false]);
    let wanted = Everything::read(&both);
    assert_eq!(wanted.failures.messages, [""; 0]);
    both.write_superblocks(&both.superblock()).expect("it writes");
    drop(both);
    let reversed = [sprout.clone(), seed.clone()];
    assert_eq!(Everything::read(&open(&reversed, &READ)), wanted);
    refused(try_open(from_ref(sprout), &READ), "missing: device 1 with uuid");
    let alone = open(from_ref(seed), &READ);
    assert!(alone.superblock().fsid() != open(image.devices(), &READ).superblock().fsid());
    Everything::read(&alone);
    refused(try_open(from_ref(seed), &WRITE), "it is a seed");
    // A seed of another file system does not belong to this one.
    let other = KernelImage::build(&spec, &Content::new(6));
    let foreign = [sprout.clone(), seed.clone(), other.devices()[0].clone()];
    refused(try_open(&foreign, &READ), "both are device 1");
    image.mount("");
}

#[test]
fn blocks_may_carry_the_metadata_uuid() {
    let spec = ImageSpec::new("changed").then(Event::ChangeFsid);
    let image = KernelImage::build(&spec, &Content::new(5).all_checksummed());
    let volume = open(image.devices(), &WRITE);
    assert!(volume.superblock().fsid() != volume.superblock().metadata_uuid());
    assert!(Everything::read(&volume).blocks.len() > 20);
    volume.write_superblocks(&volume.superblock()).expect("it writes");
    drop(volume);
    image.mount("");
}

#[test]
fn mixed_and_unequal() {
    let mixed = ImageSpec::new("mixed").devices(&[128 * MIB]).mixed().node_size(4096);
    let raid1 = larder_testkit::Profile::Raid1;
    let unequal = ImageSpec::new("unequal")
        .devices(&[400 * MIB, 256 * MIB, 200 * MIB])
        .profiles(raid1, raid1);
    for spec in [mixed, unequal] {
        let image = KernelImage::build(&spec, &Content::new(9).all_checksummed());
        let found = Everything::read(&open(image.devices(), &READ));
        assert!(found.blocks.len() > 20 && found.data.len() > 5);
        assert_eq!(found.failures.messages, [""; 0]);
    }
}

/// The first device of an image, in memory.
fn in_memory(image: &KernelImage) -> MemoryDevice {
    let file = FileDevice::open(&image.devices()[0], Access::ReadOnly).expect("it opens");
    let memory = MemoryDevice::new("hostile", file.len_bytes());
    let mut piece = vec![0; MIB as usize];
    for offset in (0..file.len_bytes()).step_by(piece.len()) {
        file.read_at(&mut piece, offset).expect("it reads");
        if piece.iter().any(|byte| *byte != 0) {
            memory.write_at(&piece, offset).expect("it writes");
        }
    }
    memory
}

/// An image in memory whose superblock a test can change before it is opened.
fn hostile(image: &KernelImage, change: impl FnOnce(&mut Superblock)) -> Vec<Arc<dyn Device>> {
    let memory = in_memory(image);
    let mut superblock = scan(&memory).expect("it is btrfs").superblock;
    change(&mut superblock);
    superblock.update_checksum();
    memory.write_at(superblock.as_bytes(), OFFSETS[0].0).expect("it writes");
    memory.write_at(&[0; SUPERBLOCK_SIZE], OFFSETS[1].0).expect("it writes");
    vec![Arc::new(memory)]
}

#[test]
fn copies_are_written_when_the_first_one_is_durable() {
    let recording = Recording::new();
    let device: Arc<dyn Device> = Arc::new(recording.attach(&in_memory(&small("copies"))));
    let volume = Volume::open(vec![device], &WRITE).expect("it opens");
    let events = || {
        let mut replay = recording.replay();
        std::iter::from_fn(move || replay.step()).map(|entry| match entry.event {
            DeviceEvent::Write { offset, .. } => Some(Physical(offset)),
            DeviceEvent::Discard { .. } => panic!("nothing is discarded"),
            DeviceEvent::Flush => None,
        })
    };
    volume.write_first_copies(&volume.superblock()).expect("it writes");
    assert_eq!(events().collect::<Vec<_>>(), [None, Some(OFFSETS[0]), None]);
    volume.write_superblocks(&volume.superblock()).expect("it writes");
    assert_eq!(
        events().skip(3).collect::<Vec<_>>(),
        [None, Some(OFFSETS[0]), None, Some(OFFSETS[1])]
    );
}

#[test]
fn superblocks_that_lie() {
    let image = small("hostile");
    let open = |change: &dyn Fn(&mut Superblock), options: &OpenOptions| {
        Volume::open(hostile(&image, change), options)
    };
    let read = |change: &dyn Fn(&mut Superblock)| open(change, &READ);
    read(&|_| ()).expect("unchanged it opens");
    refused(read(&|s| s.incompat_flags = (1 << 40).into()), "incompatible features: bit 40");
    let read_only = |s: &mut Superblock| s.compat_ro_flags |= 1 << 40;
    open(&read_only, &READ).expect("it can be read");
    refused(open(&read_only, &WRITE), "read-only compatible features: bit 40");
    for (bit, why) in [
        (35, "a change of its uuid was not finished"),
        (36, "a change of its uuid was not finished"),
        (38, "a change of its block group tree was not finished"),
        (39, "a change of its checksums of data was not finished"),
        (40, "a change of its checksums of tree blocks was not finished"),
        (37, "unknown flags, 0x2000000000"),
        (50, "unknown flags, 0x4000000000000"),
    ] {
        let flagged = |s: &mut Superblock| s.flags |= 1 << bit;
        refused(read(&flagged), why);
        refused(open(&flagged, &WRITE), why);
        open(&flagged, &OpenOptions { any_state: true, ..READ }).expect("it can be looked at");
    }
    for (bit, why) in [
        (2, "the kernel noted that it is damaged"),
        (32, "it is a seed"),
        (33, "metadata dump"),
        (34, "metadata dump"),
    ] {
        let flagged = |s: &mut Superblock| s.flags |= 1 << bit;
        read(&flagged).expect("it can be read");
        refused(open(&flagged, &WRITE), why);
    }
    refused(read(&|s| s.sys_chunk_array_size = 0.into()), "no chunk maps 16384 bytes");
    refused(read(&|s| s.sys_chunk_array_size = 40.into()), "system chunk array");
    refused(read(&|s| s.chunk_root_generation += 1), "its generation is");
    refused(read(&|s| s.chunk_root_level = 1), "its level is 0, wanted 1");
    refused(read(&|s| s.chunk_root = s.root), "no chunk maps");
    refused(read(&|s| s.dev_item.devid = 2.into()), "missing: device 1 with uuid");
    refused(read(&|s| s.fsid[0] ^= 1), "of another file system");
    // The key takes 17 bytes; then come length, owner, stripe_len and type, of 8 bytes each.
    let chunk = 17;
    refused(read(&|s| s.sys_chunk_array[chunk + 16] = 1), "chunk at ");
    refused(read(&|s| s.sys_chunk_array[chunk..chunk + 8].fill(0)), "its length is 0");
    refused(read(&|s| s.sys_chunk_array[chunk..chunk + 8].fill(0xff)), "not whole sectors");
    refused(read(&|s| s.sys_chunk_array[chunk + 24] |= 0x80), "several profiles");
    refused(read(&|s| s.sys_chunk_array[chunk + 44..][..2].fill(0)), "num_stripes is 0");
    let far = |s: &mut Superblock| s.sys_chunk_array[chunk + 48 + 8 + 4] = 1;
    refused(read(&far), "its stripe on device 1 ends at 4");
    assert!(chunk + 48 + 64 < SYS_CHUNK_ARRAY_SIZE);
}

#[test]
fn writing_wants_whole_writable_devices() {
    let image = small("short");
    let read_only = devices(image.devices(), Access::ReadOnly);
    refused(Volume::open(read_only, &WRITE), "is open for reading only");
    let file = std::fs::File::options().write(true).open(&image.devices()[0]).expect("it opens");
    file.set_len(255 * MIB).expect("it can be cut");
    open(image.devices(), &READ);
    refused(try_open(image.devices(), &WRITE), "the file system believes 268435456");
}

#[test]
fn chunks_and_addresses_of_a_real_image() {
    let image = small("map");
    let volume = open(image.devices(), &READ);
    for chunk in volume.chunks().iter() {
        assert!(matches!(chunk.profile(), Profile::Single | Profile::Dup));
        let mapped = volume.map(chunk.logical(), chunk.len_bytes()).expect("it is mapped");
        assert_eq!(mapped.len(), 1);
        assert_eq!(mapped[0].mirrors.len(), volume.copies(chunk.logical()));
        for address in &mapped[0].mirrors {
            let back = volume.contents_at(address.devid, address.physical);
            assert_eq!(back, [larder_volume::chunk::Content::Data(chunk.logical())]);
        }
    }
    let error = volume.map(Logical(0), 1).expect_err("nothing lies there");
    assert_eq!(error.to_string(), "no chunk maps 1 bytes at logical address 0");
}
