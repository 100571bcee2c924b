//! Opening a file system with a tampered log ends. It leaves a sound file system, or the state
//! after the crash.

use std::sync::Arc;

use larder::OpenOptions;
use larder::device::{Device, MemoryDevice};
use larder_check::Kind;
use larder_format::item::RootItem;
use larder_format::node::KeyPointer;
use larder_format::{Header, Logical, Node};
use larder_power_cuts::load;
use larder_testkit::{ImageSpec, KernelImage};
use larder_volume::{BlockExpectation, Volume};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{folder_of, scenarios};

/// Logs that are derived from each.
const TRIALS: u64 = 8;

fn volume(device: &MemoryDevice, write: bool) -> Volume {
    let options = larder_volume::OpenOptions { write, ..Default::default() };
    Volume::open(vec![Arc::new(device.snapshot())], &options).unwrap()
}

fn block(volume: &Volume, logical: Logical) -> Vec<u8> {
    let mut block = vec![0; volume.nodesize() as usize];
    volume.read_tree_block(logical, &BlockExpectation::default(), &mut block).unwrap();
    block
}

/// The blocks of all logs, that of the tree of log trees first.
fn log_blocks(volume: &Volume) -> Vec<Logical> {
    let mut found = Vec::new();
    let mut pending = vec![Logical(volume.superblock().log_root.get())];
    while let Some(logical) = pending.pop() {
        found.push(logical);
        let bytes = block(volume, logical);
        let node = Node::parse(&bytes).unwrap();
        if node.is_leaf() {
            let roots = node.iter_items().filter_map(|(_, data)| RootItem::parse(data).ok());
            pending.extend(roots.filter(|_| found.len() == 1).map(|root| root.bytenr()));
        } else {
            pending.extend(node.key_pointers().iter().map(KeyPointer::blockptr));
        }
    }
    found
}

/// Changes a few bytes of items of a block and makes its checksum right.
fn tamper(volume: &Volume, logical: Logical, random: &mut StdRng) {
    let mut bytes = block(volume, logical);
    let used: Vec<usize> =
        (size_of::<Header>()..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    for _ in 0..random.random_range(1..4) {
        let at = used[random.random_range(0..used.len())] + random.random_range(0..2);
        let Some(byte) = bytes.get_mut(at) else { continue };
        *byte = match random.random_range(0..4) {
            0 => random.random_range(0..=255),
            1 => byte.wrapping_add(1),
            2 => *byte ^ 1 << random.random_range(0..8),
            _ => 0,
        };
    }
    let sum = volume.checksum_type().compute_block(&bytes);
    bytes[..sum.as_bytes().len()].copy_from_slice(sum.as_bytes());
    volume.write(logical, &bytes).unwrap();
}

#[test]
fn tampered_logs() {
    let image = KernelImage::empty(&ImageSpec::new("hostile").node_size(4096));
    let mount = image.mount("");
    for scenario in scenarios::ALL {
        let folder = folder_of(mount.path(), scenario);
        std::fs::create_dir_all(&folder).unwrap();
        (scenario.before)(&folder).unwrap();
    }
    drop(mount);
    let mut random = StdRng::seed_from_u64(larder_testkit::seed(41));
    let (mut refused, mut replayed) = (0, 0);
    for scenario in scenarios::ALL {
        let crashed = image.cut_power(|root| (scenario.work)(&folder_of(root, scenario)).unwrap());
        if !super::has_log(&crashed) {
            continue;
        }
        let base = load(&crashed.devices()[0]);
        let blocks = log_blocks(&volume(&base, false));
        for _ in 0..TRIALS {
            let device = Arc::new(base.snapshot());
            let options = larder_volume::OpenOptions { write: true, ..Default::default() };
            let tampered = Volume::open(vec![device.clone()], &options).unwrap();
            tamper(&tampered, blocks[random.random_range(0..blocks.len())], &mut random);
            drop(tampered);
            let before = device.snapshot();
            match OpenOptions::new().write(true).open_devices(vec![device.clone()]) {
                Ok(fs) => {
                    replayed += 1;
                    fs.sync().unwrap();
                    drop(fs);
                    check(&device, scenario.name);
                }
                Err(error) => {
                    refused += 1;
                    assert!(is_same(&before, &device), "{}: {error}", scenario.name);
                }
            }
        }
    }
    println!("{replayed} replayed, {refused} refused");
    assert!(refused > TRIALS && replayed > TRIALS, "{refused}, {replayed}");
}

/// The log's word about data and its length is taken; nothing else comes of it.
#[track_caller]
fn check(device: &MemoryDevice, what: &str) {
    let report = larder_check::check(&volume(device, false), &larder_check::Options::default())
        .expect("nobody stops it");
    let is_believed =
        |kind| matches!(kind, Kind::ChecksumMissing | Kind::ChecksumUnexpected | Kind::FileSize);
    assert!(report.kinds.iter().all(|found| is_believed(found.kind)), "{what}: {report}");
}

fn is_same(one: &MemoryDevice, other: &MemoryDevice) -> bool {
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    (0..one.len_bytes()).step_by(1 << 20).all(|offset| {
        one.read_at(&mut left, offset).unwrap();
        other.read_at(&mut right, offset).unwrap();
        left == right
    })
}
