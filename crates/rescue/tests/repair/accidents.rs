//! Accidents: ranges of devices overwritten with something else, devices cut short, the beginning
//! taken by another file system, superblocks of an earlier commit, devices in another order.

use std::sync::Arc;

use larder_device::{Device, MemoryDevice};

use crate::damage::{Base, image};
use crate::mutants::{Outcomes, treat};
use crate::patient::Patient;
use crate::random::Random;

/// Accidents of each image in each run.
const ROUNDS: u64 = 6;
const BASES: [Base; 3] = [Base::Plain, Base::Holes, Base::Raid1];
const MOST_RANGES: usize = 4;
const LONGEST_BYTES: usize = 1 << 18;

/// Overwrites a range of a device.
fn overwrite(patient: &Patient, random: &mut Random) -> String {
    let devices: Vec<Arc<MemoryDevice>> = patient.devices().collect();
    let device = random.below(devices.len());
    let len = (1 + random.below(LONGEST_BYTES / 4096)) * 4096;
    // Most of what is written lies at the beginning.
    let end = devices[device].len_bytes() as usize / [1, 4][random.below(2)];
    let at = random.below((end - len) / 4096) * 4096;
    let bytes: Vec<u8> = match random.below(2) {
        0 => vec![0; len],
        _ => (0..len).map(|_| random.below(256) as u8).collect(),
    };
    patient.write(device, at as u64, &bytes);
    format!("{len} bytes at {at} of device {device}")
}

/// The same file system on devices that are shorter, if `shorter`, and in another order.
fn altered(patient: &Patient, random: &mut Random, shorter: bool) -> Patient {
    let mut devices: Vec<Arc<MemoryDevice>> =
        patient.devices().map(|device| Arc::new(device.snapshot())).collect();
    if shorter {
        let last = devices.pop().expect("has a device");
        let lost = (1 + random.below(64)) as u64 * 4096;
        let mut bytes = vec![0; (last.len_bytes() - lost) as usize];
        last.read_at(&mut bytes, 0).expect("reads");
        let short = MemoryDevice::new(last.name(), bytes.len() as u64);
        short.write_at(&bytes, 0).expect("writes");
        devices.push(Arc::new(short));
    }
    let turn = random.below(devices.len());
    devices.rotate_left(turn);
    Patient::of(devices)
}

fn happen(patient: Patient, random: &mut Random) -> (Patient, String) {
    match random.below(6) {
        0 => {
            let first = vec![0x5A; (1 + random.below(64)) << 20];
            patient.write(0, 0, &first);
            let what = format!("the first {} bytes", first.len());
            (patient, what)
        }
        1 => {
            patient.put_one_commit_back(0);
            (patient, "superblocks of the commit before".into())
        }
        2 => (altered(&patient, random, true), "a shorter device".into()),
        _ => {
            let patient = altered(&patient, random, false);
            let ranges = 1 + random.below(MOST_RANGES);
            let what: Vec<String> = (0..ranges).map(|_| overwrite(&patient, random)).collect();
            (patient, what.join(", "))
        }
    }
}

#[test]
fn accidents_are_healed_or_left() {
    let seed = larder_testkit::seed(35);
    for base in BASES {
        let image = image(base);
        let sound = Patient::load(image.devices());
        let mut outcomes = Outcomes::default();
        for round in 0..ROUNDS * larder_testkit::effort() {
            let mut random = Random(seed << 32 | round);
            let (patient, what) = happen(sound.copy(), &mut random);
            let what = format!("seed {seed}, {base:?} {round}: {what}");
            treat(&patient, round, &what, &mut outcomes);
        }
        println!("{base:?}: {outcomes:?}");
    }
}
