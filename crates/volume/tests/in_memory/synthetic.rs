//! Volumes on memory devices: faults, races, raid stripe extents and hostile chunk trees.

use std::sync::Arc;
use std::thread;

use larder_device::{Device, MemoryDevice, Operation};
use larder_format::item::{ChunkHeader, DevItem, Stripe};
use larder_format::node::{HEADER_SIZE, Header, ItemHeader, KeyPointer};
use larder_format::superblock::{MAGIC, OFFSETS, Superblock};
use larder_format::{
    BlockGroupFlags, ChecksumType, ItemType, Key, Logical, Physical, Profile, Uuid, objectid,
};
use larder_test_devices::{Fault, FaultDevice};
use larder_volume::{
    BlockExpectation, Chunk, ChunkMap, ChunkStripe, OpenError, OpenOptions, ReadError, Volume,
    VolumeDevice,
};
use proptest::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

const START: u64 = 1 << 24;
const DEVICE_BYTES: u64 = 16 << 20;
const NODESIZE: usize = 4096;
const GENERATION: u64 = 7;

fn superblock() -> Box<Superblock> {
    let mut superblock = Superblock::zeroed();
    superblock.magic = MAGIC.into();
    superblock.bytenr = OFFSETS[0].0.into();
    superblock.generation = GENERATION.into();
    superblock.num_devices = 1.into();
    superblock.sectorsize = 4096.into();
    superblock.nodesize = (NODESIZE as u32).into();
    superblock.dev_item = dev_item(1);
    superblock
}

fn dev_item(devid: u64) -> DevItem {
    let mut item = DevItem::new_zeroed();
    item.devid = devid.into();
    item.total_bytes = DEVICE_BYTES.into();
    item.uuid = *Uuid::from_u128(devid.into()).as_bytes();
    item
}

fn chunk(profile: Profile, kind: BlockGroupFlags, stripes: u64, len_bytes: u64) -> Chunk {
    let stripe = |devid: u64| ChunkStripe {
        devid,
        dev_uuid: Uuid::from_u128(devid.into()),
        physical: Physical(devid << 20),
    };
    let stripes: Vec<ChunkStripe> = (1..=stripes).map(stripe).collect();
    Chunk::new(Logical(START), len_bytes, kind | profile.flags(), stripes).expect("sound")
}

fn memory(number: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(format!("memory {number}"), DEVICE_BYTES))
}

fn volume(superblock: Box<Superblock>, chunk: &Chunk, devices: &[Arc<dyn Device>]) -> Volume {
    let member = |(devid, device): (u64, &Arc<dyn Device>)| {
        VolumeDevice::new(dev_item(devid), device.clone())
    };
    let chunks = ChunkMap::from_chunks([chunk.clone()]).expect("one chunk");
    Volume::new(superblock, (1..).zip(devices).map(member).collect(), chunks)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 / 7 + at / 4096 + seed) as u8).collect()
}

fn checksums(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(4096).flat_map(|s| ChecksumType::Crc32c.compute(s).as_bytes().to_vec()).collect()
}

/// A device that cannot read some sectors: only these come from the other mirror, and are
/// rewritten.
#[test]
fn unreadable_sectors_come_from_elsewhere() {
    let devices: Vec<Arc<FaultDevice>> =
        (1..=2).map(|number| Arc::new(FaultDevice::new(memory(number)))).collect();
    let both: Vec<Arc<dyn Device>> = devices.iter().map(|d| d.clone() as Arc<dyn Device>).collect();
    let chunk = chunk(Profile::Raid1, BlockGroupFlags::DATA, 2, 1 << 20);
    let volume = volume(superblock(), &chunk, &both);
    let wanted = pattern(1 << 20, 1);
    volume.write(Logical(START), &wanted).expect("it writes");
    // One sector here and another there: no copy is whole.
    for (number, device) in (1_u64..).zip(&devices) {
        let start = (number << 20) + number * 40960;
        device.inject(Fault::fail(Operation::Read).within(start..start + 4096));
    }
    for checksums in [None, Some(checksums(&wanted))] {
        let mut found = vec![0; wanted.len()];
        let read = volume
            .read_data(Logical(START), &mut found, checksums.as_deref())
            .expect("each sector is somewhere");
        assert!(found == wanted);
        assert_eq!((read.failures.len(), read.healed), (1, 1), "{:?}", read.failures);
        assert_eq!(read.failures[0].len_bytes, 4096);
    }
    assert_eq!(volume.stats().healed, 2);
    // If both copies of a sector are gone, the error names both.
    devices[1].inject(Fault::fail(Operation::Read).within((2 << 20) + 40960..(2 << 20) + 45056));
    let mut found = vec![0; wanted.len()];
    let error = volume.read_data(Logical(START), &mut found, None).expect_err("no copy is left");
    let message = error.to_string();
    assert!(message.starts_with(&format!("data at {}, 4096 bytes", START + 40960)), "{message}");
    for device in ["copy 0 on device 1 (memory 1)", "copy 1 on device 2 (memory 2)"] {
        assert!(message.contains(device), "{message}");
    }
}

#[test]
fn checksums_must_fit() {
    let chunk = chunk(Profile::Single, BlockGroupFlags::DATA, 1, 1 << 20);
    let volume = volume(superblock(), &chunk, &[memory(1)]);
    let read = |logical: u64, len: usize, checksums: usize| {
        volume.read_data(Logical(logical), &mut vec![0; len], Some(&vec![0; checksums]))
    };
    for (logical, len, checksums) in
        [(START + 1, 4096, 4), (START, 4095, 4), (START, 8192, 4), (START, 4096, 8)]
    {
        let error = read(logical, len, checksums).expect_err("it does not fit");
        assert!(matches!(error, ReadError::Misaligned { .. }), "{error}");
    }
    let error = read(START + (1 << 20), 4096, 4).expect_err("it is past the end");
    assert!(matches!(error, ReadError::Unmapped(_)), "{error}");
    let error = read(START, 4096, 4).expect_err("zeros have another checksum");
    assert!(error.to_string().contains("its checksum is 0x"), "{error}");
}

/// Threads that write different parts of the same rows leave parity that fits all of them, while
/// others rebuild.
#[test]
fn writers_of_one_row_do_not_spoil_its_parity() {
    let chunk = chunk(Profile::Raid6, BlockGroupFlags::DATA, 6, 4 * 8 * 65536);
    let devices: Vec<Arc<dyn Device>> = (1..=6).map(|n| memory(n) as Arc<dyn Device>).collect();
    let volume = volume(superblock(), &chunk, &devices);
    const PIECE: usize = 20480;
    let pieces = chunk.len_bytes() as usize / PIECE;
    let wanted = pattern(pieces * PIECE, 3);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (volume, wanted) = (&volume, &wanted);
            scope.spawn(move || {
                let mut rebuilt = vec![0; PIECE];
                for piece in (worker..pieces).step_by(4) {
                    let at = Logical(START + (piece * PIECE) as u64);
                    let bytes = &wanted[piece * PIECE..][..PIECE];
                    volume.write(at, bytes).expect("it writes");
                    volume.read_copy(at, 1, &mut rebuilt).expect("it is rebuilt");
                    assert!(rebuilt == bytes, "piece {piece} is rebuilt otherwise");
                }
            });
        }
    });
    let mut found = vec![0; wanted.len()];
    for copy in 0..chunk.copies() {
        volume.read_copy(Logical(START), copy, &mut found).expect("it reads");
        assert!(found == wanted, "copy {copy} differs");
    }
}

/// A file system of one device that has only a chunk tree, block by block.
struct Forged {
    device: Arc<MemoryDevice>,
    superblock: Box<Superblock>,
}

impl Forged {
    fn new() -> Self {
        let mut superblock = superblock();
        let mut array = Key::new(objectid::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, START);
        array.objectid = objectid::FIRST_CHUNK_TREE;
        let mut bytes = larder_format::DiskKey::from(array).as_bytes().to_vec();
        bytes.extend(chunk_item(1 << 20, 1 << 20));
        superblock.sys_chunk_array[..bytes.len()].copy_from_slice(&bytes);
        superblock.sys_chunk_array_size = (bytes.len() as u32).into();
        superblock.chunk_root_generation = GENERATION.into();
        Self { device: memory(1), superblock }
    }

    /// Writes block number `number` of the system chunk.
    fn block(&self, number: u64, level: u8, body: &[u8], count: usize) {
        let logical = START + number * NODESIZE as u64;
        let mut header = Header::new_zeroed();
        header.bytenr = logical.into();
        header.generation = GENERATION.into();
        header.owner = objectid::CHUNK_TREE.into();
        header.nritems = (count as u32).into();
        header.level = level;
        let mut block = header.as_bytes().to_vec();
        block.extend(body);
        block.resize(NODESIZE, 0);
        let csum = ChecksumType::Crc32c.compute_block(&block).padded();
        block[..csum.len()].copy_from_slice(&csum);
        self.device.write_at(&block, (1 << 20) + number * NODESIZE as u64).expect("it writes");
    }

    fn leaf(&self, number: u64, items: &[(Key, Vec<u8>)]) {
        let mut body = vec![0; NODESIZE - HEADER_SIZE];
        let mut end = body.len();
        for (slot, (key, data)) in items.iter().enumerate() {
            end -= data.len();
            let (offset, size) = ((end as u32).into(), (data.len() as u32).into());
            let item = ItemHeader { key: (*key).into(), offset, size };
            body[slot * 25..][..25].copy_from_slice(item.as_bytes());
            body[end..][..data.len()].copy_from_slice(data);
        }
        self.block(number, 0, &body, items.len());
    }

    fn node(&self, number: u64, level: u8, children: &[(Key, u64)]) {
        let pointer = |(key, child): &(Key, u64)| KeyPointer {
            key: (*key).into(),
            blockptr: (START + child * NODESIZE as u64).into(),
            generation: GENERATION.into(),
        };
        let body: Vec<u8> =
            children.iter().flat_map(|child| pointer(child).as_bytes().to_vec()).collect();
        self.block(number, level, &body, children.len());
    }

    fn open(mut self, root_level: u8) -> Result<Volume, OpenError> {
        self.superblock.chunk_root = START.into();
        self.superblock.chunk_root_level = root_level;
        self.superblock.update_checksum();
        self.device.write_at(self.superblock.as_bytes(), OFFSETS[0].0).expect("it writes");
        Volume::open(vec![self.device], &OpenOptions::default())
    }
}

fn chunk_item(len_bytes: u64, physical: u64) -> Vec<u8> {
    let mut header = ChunkHeader::new_zeroed();
    header.length = len_bytes.into();
    header.stripe_len = 65536.into();
    header.flags = BlockGroupFlags::SYSTEM.bits().into();
    header.num_stripes = 1.into();
    let stripe = Stripe { devid: 1.into(), offset: physical.into(), dev_uuid: dev_item(1).uuid };
    [header.as_bytes(), stripe.as_bytes()].concat()
}

fn device_entry(devid: u64, item: u64) -> (Key, Vec<u8>) {
    let key = Key::new(objectid::DEV_ITEMS, ItemType::DEV_ITEM, devid);
    (key, dev_item(item).as_bytes().to_vec())
}

fn chunk_entry(logical: u64, len_bytes: u64, physical: u64) -> (Key, Vec<u8>) {
    let key = Key::new(objectid::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, logical);
    (key, chunk_item(len_bytes, physical))
}

#[track_caller]
fn refused(result: Result<Volume, OpenError>, why: &str) {
    let error = result.map(drop).expect_err(why).to_string();
    assert!(error.contains(why), "{error:?} does not say {why:?}");
}

#[test]
fn chunk_trees_that_lie() {
    let with_leaf = |items: &[(Key, Vec<u8>)]| {
        let forged = Forged::new();
        forged.leaf(0, items);
        forged.open(0)
    };
    let system = || chunk_entry(START, 1 << 20, 1 << 20);
    let more = |logical: u64, len: u64, physical: u64| {
        with_leaf(&[device_entry(1, 1), system(), chunk_entry(logical, len, physical)])
    };
    let volume = with_leaf(&[device_entry(1, 1), system()]).expect("a sound one opens");
    assert_eq!((volume.chunks().len(), volume.devices().len()), (1, 1));
    refused(with_leaf(&[system()]), "is not a device of file system");
    refused(with_leaf(&[device_entry(2, 1), system()]), "is of device 1");
    refused(with_leaf(&[device_entry(1, 1), device_entry(2, 2), system()]), "missing: device 2");
    refused(more(START + 4096, 4096, 1 << 20), "overlap the chunk at 16777216");
    refused(more(START << 1, 4096, DEVICE_BYTES), "ends at 16781312, the device at 16777216");
    refused(more(START << 1, 4095, 1 << 20), "not whole sectors");
    refused(more(u64::MAX - 4095, 4096, 1 << 20), "pass the end of the address space");
    let mut short = system();
    short.0.offset = START << 1;
    short.1.pop();
    refused(with_leaf(&[device_entry(1, 1), system(), short]), "item (256 CHUNK_ITEM");
    let key = device_entry(1, 1).0;
    refused(with_leaf(&[(key, vec![0; 97])]), "item (1 DEV_ITEM 1)");
}

/// A block that two parents point to is visited once; otherwise a small image could make a walk
/// endless.
#[test]
fn no_block_is_walked_twice() {
    let key = |offset| Key::new(objectid::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, offset);
    let forged = Forged::new();
    forged.node(0, 2, &[(key(1), 1), (key(2), 2)]);
    forged.node(1, 1, &[(key(1), 3), (key(9), 4)]);
    forged.node(2, 1, &[(key(2), 5), (key(9), 4)]);
    for (number, offset) in [(3, 1), (4, 9), (5, 2)] {
        forged.leaf(number, &[(Key { item_type: ItemType(1), ..key(offset) }, Vec::new())]);
    }
    refused(forged.open(2), "its first key is not (256 CHUNK_ITEM 1) but (256 INODE_ITEM 1)");
    let forged = Forged::new();
    let key = |offset| Key { item_type: ItemType(1), ..key(offset) };
    forged.node(0, 2, &[(key(1), 1), (key(2), 2)]);
    forged.node(1, 1, &[(key(1), 3), (key(9), 4)]);
    forged.node(2, 1, &[(key(2), 5), (key(9), 4)]);
    for (number, offset) in [(3, 1), (4, 9), (5, 2)] {
        forged.leaf(number, &[(key(offset), Vec::new())]);
    }
    refused(forged.open(2), "its child at 16793600 was met before");
}

/// A repair replaces older content, never newer.
#[test]
fn a_newer_block_is_left_alone() {
    let devices = [memory(1), memory(2)];
    let as_devices: Vec<Arc<dyn Device>> =
        devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let chunk = chunk(Profile::Raid1, BlockGroupFlags::METADATA, 2, 1 << 20);
    let volume = volume(superblock(), &chunk, &as_devices);
    let block = |generation: u64| {
        let mut header = Header::new_zeroed();
        header.bytenr = START.into();
        header.generation = generation.into();
        let mut block = header.as_bytes().to_vec();
        block.resize(NODESIZE, 0);
        let csum = ChecksumType::Crc32c.compute_block(&block).padded();
        block[..csum.len()].copy_from_slice(&csum);
        block
    };
    let read = |wanted: u64| {
        for (number, generation) in [(1, 4), (2, 8)] {
            devices[number as usize - 1].write_at(&block(generation), number << 20).expect("ok");
        }
        let expected = BlockExpectation { generation: Some(wanted), ..BlockExpectation::default() };
        let mut buf = vec![0; NODESIZE];
        let read = volume.read_tree_block(Logical(START), &expected, &mut buf).expect("one fits");
        assert!(buf == block(wanted));
        (read.copy, read.healed)
    };
    assert_eq!(read(8), (1, 1), "the older copy is replaced");
    assert_eq!(read(4), (0, 0), "the first copy is good");
    devices[0].write_at(&block(8), 1 << 20).expect("it writes");
    devices[1].write_at(&block(4), 2 << 20).expect("it writes");
    let expected = BlockExpectation { generation: Some(4), ..BlockExpectation::default() };
    let mut buf = vec![0; NODESIZE];
    let read = volume.read_tree_block(Logical(START), &expected, &mut buf).expect("one fits");
    assert_eq!((read.copy, read.healed, read.failures.len()), (1, 0, 1));
    devices[0].read_at(&mut buf, 1 << 20).expect("it reads");
    assert!(buf == block(8), "the newer block is still there");
    assert_eq!(volume.stats().devices[0].generation_errors, 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever the superblock, its system chunks and the chunk tree say, with right checksums:
    /// opening and reading end, and do not panic.
    #[test]
    fn lies_do_not_panic(
        array in proptest::collection::vec((0_usize..129, any::<u8>()), 0..3),
        leaf in proptest::collection::vec((0_usize..400, any::<u8>()), 0..4),
        address: u64,
    ) {
        let mut forged = Forged::new();
        for (at, byte) in array {
            forged.superblock.sys_chunk_array[at] = byte;
        }
        let items = [device_entry(1, 1), chunk_entry(START, 1 << 20, 1 << 20)];
        forged.leaf(0, &items);
        let mut block = vec![0; NODESIZE];
        forged.device.read_at(&mut block, 1 << 20).expect("it reads");
        for (at, byte) in leaf {
            // The item headers from the front, the items from the back.
            let at = if at < 60 { HEADER_SIZE + at } else { NODESIZE - 1 - (at - 60) };
            block[at] = byte;
        }
        let csum = ChecksumType::Crc32c.compute_block(&block).padded();
        block[..csum.len()].copy_from_slice(&csum);
        forged.device.write_at(&block, 1 << 20).expect("it writes");
        if let Ok(volume) = forged.open(0) {
            let starts: Vec<Logical> = volume.chunks().iter().map(|c| c.logical()).collect();
            for start in starts.into_iter().chain([Logical(address)]) {
                let mut buf = [0; 3 * 4096];
                let _ = volume.read_data(start, &mut buf, None);
                let _ = volume.map(start, u64::MAX);
                volume.readahead(start, 1 << 20);
                for copy in 0..volume.copies(start) {
                    let _ = volume.read_copy(start, copy, &mut buf);
                }
            }
        }
    }
}
