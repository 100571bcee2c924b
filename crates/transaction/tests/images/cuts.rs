//! Power cuts in work on devices: how many there are, where, and what must hold after each.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_power_cuts::{assert_sound, assert_sound_to_btrfs, survival};
use larder_test_devices::{Event, Recording};
use larder_transaction::TransactionManager;
use larder_volume::{OpenOptions, Volume};

use crate::support::{Random, names, open_devices};

/// Cuts in one kind of work for each unit of the effort, if that is more than one: 3,000 with
/// `scripts/test --long`.
const CUTS: u64 = 300;

/// Positions in a part of a recording at which the power is cut, in order: half of them after
/// flushes, the others after any events. There are `few`, or with more effort [`CUTS`] times that.
pub(crate) fn positions(
    recording: &Recording,
    part: Range<usize>,
    few: u64,
    random: &mut Random,
) -> Vec<usize> {
    let mut replay = recording.replay();
    let (mut flushes, mut all) = (Vec::new(), Vec::new());
    while let Some(entry) = replay.step() {
        let position = replay.position();
        if part.contains(&position) {
            all.push(position);
            flushes.extend((entry.event == Event::Flush).then_some(position));
        }
    }
    let count = match larder_testkit::effort() {
        1 => few,
        effort => CUTS * effort,
    };
    let mut any = |of: &[usize]| of[random.below(of.len() as u64) as usize];
    let mut chosen: Vec<_> =
        (0..count).map(|number| any(if number % 2 == 0 { &flushes } else { &all })).collect();
    chosen.sort_unstable();
    chosen
}

/// The devices that belong to the file system, of those with a superblock of it.
fn members(devices: Vec<MemoryDevice>) -> Vec<MemoryDevice> {
    let has_superblock = |device: &MemoryDevice| larder_volume::scan(device).is_ok();
    let found: Vec<MemoryDevice> = devices.into_iter().filter(has_superblock).collect();
    let snapshot = |device: &MemoryDevice| Arc::new(device.snapshot()) as Arc<dyn Device>;
    let options = OpenOptions::default();
    let volume = Volume::open(found.iter().map(snapshot).collect(), &options).unwrap();
    let is_member = |device: &MemoryDevice| {
        let uuid = larder_volume::scan(device).unwrap().superblock.dev_item.uuid();
        volume.devices().iter().any(|member| member.uuid() == uuid)
    };
    found.into_iter().filter(is_member).collect()
}

fn generation(device: &MemoryDevice) -> u64 {
    larder_volume::scan(device).unwrap().superblock.generation.get()
}

/// Cuts the power at [`positions`] in a part of a recording. Each time the file system is sound and
/// has the files of the state that was durable or of the next one, and `go_on` works on it.
pub(crate) fn after_power_cuts(
    what: &str,
    recording: &Recording,
    states: &[(usize, Vec<String>)],
    part: Range<usize>,
    (seed, few): (u64, u64),
    go_on: impl Fn(&TransactionManager),
) {
    let mut random = Random(seed);
    let positions = positions(recording, part, few, &mut random);
    let mut replay = recording.replay();
    for (number, position) in positions.iter().enumerate() {
        replay.advance_to(*position);
        let mut devices = members(replay.power_cut(survival(random.next())));
        // btrfs check goes by the superblock of the first one.
        devices.sort_by_key(|device| Reverse(generation(device)));
        let what = format!("{what}, at {position}");
        assert_sound(&devices, &what);
        if number % 32 == 0 {
            assert_sound_to_btrfs(&devices, &what);
        }
        let devices = devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>);
        let manager = open_devices(devices.collect()).unwrap();
        let promised = states.iter().rposition(|(noted, _)| noted <= position).unwrap();
        let found = names(&manager, "larder").unwrap();
        let may_be = states[promised..].iter().take(2).any(|(_, names)| *names == found);
        assert!(may_be, "{what}: {} files", found.len());
        go_on(&manager);
    }
    println!("{what}: {} power cuts", positions.len());
}
