//! Devices that cannot be read, or are missing, and parity.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use larder::device::Device;
use larder::{Profile, ScrubEnd, ScrubFate, ScrubFinding, ScrubOptions};
use larder_device::Operation;
use larder_power_cuts::{load, survival};
use larder_test_devices::{Fault, FaultDevice, Recording};
use larder_testkit::{Content, ImageSpec, KernelImage, damage};
use parking_lot::Mutex;

use crate::made::{Made, SECTOR, options, spoil};

/// The devices in memory, of which each can be made to fail.
fn faulty(made: &Made) -> Vec<Arc<FaultDevice>> {
    made.files.iter().map(|file| Arc::new(FaultDevice::new(Arc::new(load(file))))).collect()
}

fn shared(devices: &[Arc<FaultDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
}

fn sector_at(physical: u64) -> Range<u64> {
    physical..physical + SECTOR
}

#[test]
fn sectors_that_cannot_be_read_are_written_anew() {
    let made = Made::new(Profile::Raid1, Profile::Raid1, 2);
    let devices = faulty(&made);
    let places = [made.data + SECTOR, made.plain, made.block].map(|at| made.places(at));
    let fs = options().write(true).open_devices(shared(&devices)).unwrap();
    for place in &places {
        let (device, physical) = place[1];
        let fault = Fault::fail(Operation::Read).within(sector_at(physical));
        devices[device as usize - 1].inject(fault);
    }
    let findings = Mutex::new(Vec::new());
    let found = |finding: ScrubFinding| findings.lock().push(finding);
    let options = ScrubOptions { found: Some(&found), ..ScrubOptions::default() };
    let scrubs = fs.scrub(&options).unwrap();
    let sum = |of: fn(&larder::ScrubCounters) -> u64| -> u64 {
        scrubs.iter().map(|scrub| of(&scrub.counters)).sum()
    };
    assert_eq!(sum(|it| it.read_errors), 3);
    // Of the tree block all four sectors.
    assert_eq!(sum(|it| it.corrected_errors), 6);
    assert_eq!(sum(|it| it.uncorrectable_errors), 0);
    assert!(findings.lock().iter().all(|it| it.fate == ScrubFate::Repaired), "{findings:#?}");
    let reads: u64 = fs.device_errors().unwrap().iter().map(|it| it.reads).sum();
    assert_eq!(reads, 3);
}

/// Whatever a power cut leaves of a repair, no good copy is lost, and another scrub completes it.
#[test]
fn a_repair_that_is_cut_short_loses_nothing() {
    let made = Made::new(Profile::Raid1, Profile::Raid1, 2);
    let spoilt = [made.places(made.data)[0], made.places(made.block)[1], (1, 64 << 20)];
    for at in spoilt {
        spoil(&made.files, at);
    }
    let recording = Recording::new();
    let attach = |file: &PathBuf| Arc::new(recording.attach(&load(file))) as Arc<dyn Device>;
    let fs = options().write(true).open_devices(made.files.iter().map(attach).collect()).unwrap();
    let data = fs.subvolume("/").unwrap().read("data").unwrap();
    let before = recording.position();
    fs.scrub(&ScrubOptions::default()).unwrap();
    let after = recording.position();
    drop(fs);
    assert!(after > before + 2);
    for position in before..=after {
        let mut replay = recording.replay();
        replay.advance_to(position);
        let left = replay.power_cut(survival(position as u64)).into_iter();
        let left: Vec<_> = left.map(|device| Arc::new(device) as Arc<dyn Device>).collect();
        let fs = options().write(true).open_devices(left).unwrap();
        assert!(fs.subvolume("/").unwrap().read("data").unwrap() == data, "{position}");
        let lost = |scrubs: Vec<larder::DeviceScrub>| -> u64 {
            scrubs.iter().map(|scrub| scrub.counters.uncorrectable_errors).sum()
        };
        assert_eq!(lost(fs.scrub(&ScrubOptions::default()).unwrap()), 0, "{position}");
        let again = fs.scrub(&ScrubOptions::default()).unwrap();
        assert!(again.iter().all(|scrub| scrub.counters.corrected_errors == 0), "{position}");
        assert!(again.iter().all(|scrub| scrub.counters.super_errors == 0), "{position}");
    }
}

#[test]
fn a_missing_device_is_left_out_and_the_others_are_scrubbed() {
    let made = Made::new(Profile::Raid1, Profile::Raid1, 2);
    let fs = options().write(true).degraded(true).open(&made.files[..1]).unwrap();
    let scrubs = fs.scrub(&ScrubOptions::default()).unwrap();
    let [there, missing] = &scrubs[..] else { panic!("{scrubs:?}") };
    assert!(matches!(there.end, ScrubEnd::Finished), "{there:?}");
    assert!(there.counters.bytes_scrubbed() > 0 && there.counters.uncorrectable_errors == 0);
    assert!(matches!(missing.end, ScrubEnd::NoDevice), "{missing:?}");
}

#[test]
fn parity_is_verified_and_nothing_of_it_is_written() {
    for (profile, devices) in [(Profile::Raid5, 3), (Profile::Raid6, 4)] {
        let spec = ImageSpec::new(format!("parity-{profile}"))
            .devices(&vec![256 << 20; devices])
            .profiles(of_testkit(profile), of_testkit(profile));
        let image = KernelImage::build(&spec, &Content::new(3).all_checksummed());
        let fs = options().open(image.devices()).unwrap();
        let clean = fs.scrub(&ScrubOptions::default()).unwrap();
        let errors = |scrubs: &[larder::DeviceScrub]| -> (u64, u64, u64) {
            let counters = scrubs.iter().map(|scrub| scrub.counters);
            counters.fold((0, 0, 0), |(corrected, lost, parity), it| {
                let lost = lost + it.uncorrectable_errors;
                (corrected + it.corrected_errors, lost, parity + it.parity_errors)
            })
        };
        assert_eq!(errors(&clean), (0, 0, 0));
        let chunks = fs.volume().chunks();
        let data =
            chunks.iter().find(|it| it.flags().contains(larder_format::BlockGroupFlags::DATA));
        let data = data.unwrap();
        let cell = data.column_address(0, 0, 0);
        let parity = data.column_address(0, data.data_stripes(), 0);
        drop((clean, fs));
        // In one sector, and not where the two make up for each other.
        for (at, offset) in [(cell, 0), (parity, 64)] {
            let file = &image.devices()[at.devid as usize - 1];
            let start = at.physical.0 + offset;
            damage::invert(file, start..start + 16).unwrap();
        }
        let before = image.devices().iter().map(|it| std::fs::read(it).unwrap());
        let before: Vec<_> = before.collect();
        let fs = options().open(image.devices()).unwrap();
        let findings = Mutex::new(Vec::new());
        let found = |finding: ScrubFinding| findings.lock().push(finding);
        let options = ScrubOptions { found: Some(&found), ..ScrubOptions::default() };
        let scrubs = fs.scrub(&options).unwrap();
        let (corrected, lost, parity) = errors(&scrubs);
        // RAID5 has nothing left to rebuild the one cell from.
        assert_eq!(corrected + lost, 1, "{findings:#?}");
        assert_eq!(corrected, u64::from(devices == 4), "{findings:#?}");
        assert!(parity >= 1);
        let left = findings.into_inner();
        assert!(left.iter().all(ScrubFinding::is_left));
        drop(fs);
        for (file, before) in image.devices().iter().zip(before) {
            assert!(std::fs::read(file).unwrap() == before);
        }
    }
}

fn of_testkit(profile: Profile) -> larder_testkit::Profile {
    match profile {
        Profile::Raid5 => larder_testkit::Profile::Raid5,
        _ => larder_testkit::Profile::Raid6,
    }
}
