//! Writes of every profile against a flat model, read back by every copy and without devices.

use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_format::item::DevItem;
use larder_format::superblock::{OFFSETS, Superblock};
use larder_format::{BlockGroupFlags, Logical, Physical, Profile, Uuid};
use larder_volume::{Chunk, ChunkMap, ChunkStripe, Volume, VolumeDevice};
use proptest::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

pub(super) const START: u64 = 1 << 24;
const DEVICE_BYTES: u64 = 8 << 20;
const ROWS: u64 = 6;

fn superblock() -> Box<Superblock> {
    let mut superblock = Superblock::zeroed();
    superblock.sectorsize = 4096.into();
    superblock.nodesize = 16384.into();
    superblock
}

fn dev_item(devid: u64) -> DevItem {
    let mut item = DevItem::new_zeroed();
    item.devid = devid.into();
    item.total_bytes = DEVICE_BYTES.into();
    item.uuid = *Uuid::from_u128(devid.into()).as_bytes();
    item
}

pub(super) fn chunk(profile: Profile, stripes: usize) -> Chunk {
    let data = (stripes - profile.parities() as usize) / profile.copies() as usize;
    let stripes: Vec<ChunkStripe> = (1..=stripes as u64)
        .map(|number| {
            let devid = if profile == Profile::Dup { 1 } else { number };
            let dev_uuid = Uuid::from_u128(devid.into());
            ChunkStripe { devid, dev_uuid, physical: Physical(number << 20) }
        })
        .collect();
    let flags = BlockGroupFlags::DATA | profile.flags();
    Chunk::new(Logical(START), data as u64 * ROWS * 65536, flags, stripes).expect("sound")
}

/// The volume of a chunk on memory devices; `None` for a missing one.
pub(super) fn volume(chunk: &Chunk, devices: &[Option<Arc<MemoryDevice>>]) -> Volume {
    let member = |(devid, device): (u64, &Option<Arc<MemoryDevice>>)| match device {
        Some(device) => VolumeDevice::new(dev_item(devid), device.clone() as Arc<dyn Device>),
        None => VolumeDevice::missing(dev_item(devid)),
    };
    let members = (1..).zip(devices).map(member).collect();
    let chunks = ChunkMap::from_chunks([chunk.clone()]).expect("one chunk");
    Volume::new(superblock(), members, chunks)
}

pub(super) fn memory(count: usize) -> Vec<Option<Arc<MemoryDevice>>> {
    (1..=count)
        .map(|number| Some(Arc::new(MemoryDevice::new(format!("memory {number}"), DEVICE_BYTES))))
        .collect()
}

fn shapes() -> impl Strategy<Value = (Profile, usize)> {
    proptest::sample::select(vec![
        (Profile::Single, 1),
        (Profile::Dup, 2),
        (Profile::Raid0, 3),
        (Profile::Raid1, 2),
        (Profile::Raid1c3, 3),
        (Profile::Raid1c4, 4),
        (Profile::Raid10, 6),
        (Profile::Raid5, 2),
        (Profile::Raid5, 4),
        (Profile::Raid6, 3),
        (Profile::Raid6, 6),
    ])
}

/// Writes as (start, length, byte): any range, and whole rows.
fn writes() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
    proptest::collection::vec((any::<u64>(), 1_u64..400_000, any::<u8>()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_copy_has_the_written_data(
        (profile, stripes) in shapes(),
        writes in writes(),
        lost: usize,
        lost_from: usize,
    ) {
        let chunk = chunk(profile, stripes);
        let mut devices = memory(if profile == Profile::Dup { 1 } else { stripes });
        let mut model = vec![0; chunk.len_bytes() as usize];
        let lose_at = lost_from % writes.len();
        for (number, (start, len, byte)) in writes.into_iter().enumerate() {
            if number == lose_at {
                for lost in (lost..).take(profile.shape().tolerated_losses()) {
                    let count = devices.len();
                    devices[lost % count] = None;
                }
            }
            let start = start % chunk.len_bytes();
            let len = len.min(chunk.len_bytes() - start);
            let bytes: Vec<u8> = (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect();
            volume(&chunk, &devices).write(Logical(START + start), &bytes).expect("it writes");
            model[start as usize..][..len as usize].copy_from_slice(&bytes);
        }
        let volume = volume(&chunk, &devices);
        let mut found = vec![0; model.len()];
        volume.read_data(Logical(START), &mut found, None).expect("it reads");
        prop_assert!(found == model, "what is read differs");
        let is_whole = devices.iter().all(Option::is_some);
        for copy in (0..chunk.copies()).filter(|_| is_whole) {
            volume.read_copy(Logical(START), copy, &mut found).expect("the copy reads");
            prop_assert!(found == model, "copy {} differs", copy);
        }
    }
}

/// A device whose item changes gets its next superblocks with that, and the copies it now reaches.
#[test]
fn superblocks_follow_the_item_of_a_device() {
    let device = Arc::new(MemoryDevice::new("memory", 128 << 20));
    let volume = volume(&chunk(Profile::Single, 1), &[Some(device.clone())]);
    let second_copy = || {
        let mut copy = Superblock::zeroed();
        device.read_at(copy.as_mut_bytes(), OFFSETS[1].0).expect("it is long enough");
        copy
    };
    let mut template = superblock();
    template.label[0] = b'x';
    volume.write_superblocks(&template).expect("it writes");
    assert_eq!(second_copy().label[0], 0, "the device ends before");
    assert_eq!(volume.superblock().label[0], b'x');
    let grown_bytes = 100 << 20;
    volume.devices()[0].change_dev_item(|item| item.total_bytes = grown_bytes.into());
    volume.write_superblocks(&template).expect("it writes");
    assert_eq!(second_copy().label[0], b'x');
    assert_eq!(second_copy().dev_item.total_bytes.get(), grown_bytes);
}
