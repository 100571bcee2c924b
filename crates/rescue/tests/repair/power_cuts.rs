//! Power cuts at every write of a repair, calls that fail, and what undoing gives back after each.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_check::{Options, check};
use larder_device::{Device, MemoryDevice, Operation};
use larder_format::Header;
use larder_format::objectid::{CHUNK_TREE, FS_TREE};
use larder_rescue::repair::{self, Prepared, Verdict, Wishes};
use larder_rescue::undo::undo;
use larder_test_devices::{Fault, FaultDevice, Recording, Survival};
use larder_testkit::Scratch;
use larder_volume::{OpenOptions, Volume};

use crate::damage::{Base, all_wounds, image};
use crate::lost::lose;
use crate::patient::Patient;
use crate::random::Random;
use crate::support::is_same;

/// Wounds whose repairs write blocks of all kinds.
const WOUNDS: &[&str] = &[
    "the link count of a file",
    "used bytes of a block group",
    "the owner of a chunk",
    "bytes_used of a device",
];
/// States without undoing that are checked, of each repair.
const CHECKED: usize = 6;

fn wounded() -> Vec<Patient> {
    let image = image(Base::Plain);
    let sound = Patient::load(image.devices());
    let wounds = all_wounds();
    let planted = |name: &&str| {
        let wound = wounds.iter().find(|wound| wound.name == *name)?;
        let patient = sound.copy();
        (wound.plant)(&patient);
        Some(patient)
    };
    let mut patients: Vec<Patient> = WOUNDS.iter().filter_map(planted).collect();
    assert_eq!(patients.len(), WOUNDS.len(), "the wounds have other names now");
    for is_lost in [(|it| it.owner.get() == FS_TREE && it.level > 0) as fn(&Header) -> bool, |it| {
        it.owner.get() == CHUNK_TREE
    }] {
        let patient = sound.copy();
        assert!(lose(&patient, is_lost) > 0);
        patients.push(patient);
    }
    patients
}

/// The number of findings; `None` if it cannot be opened.
fn findings(devices: Vec<MemoryDevice>) -> Option<u64> {
    let devices = devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>);
    let options = OpenOptions { any_state: true, ..OpenOptions::default() };
    let volume = Volume::open(devices.collect(), &options).ok()?;
    let report = check(&volume, &Options { threads: 1, ..Options::default() });
    Some(report.expect("nobody stops it").count())
}

fn proved(devices: Vec<Arc<dyn Device>>) -> Prepared {
    let go_on = |_| ControlFlow::Continue(());
    let prepared = repair::prepare(devices, &Wishes::default(), &go_on).expect("opens");
    assert!(matches!(prepared.verdict, Verdict::Proved), "{:?}", prepared.verdict);
    prepared
}

/// Undoes a repair on what a power cut left, and compares it with what was there before.
fn undone(undo_file: &Path, left: Vec<MemoryDevice>, before: &[MemoryDevice]) {
    let left: Vec<Arc<MemoryDevice>> = left.into_iter().map(Arc::new).collect();
    let devices: Vec<Arc<dyn Device>> = left.iter().map(|it| it.clone() as _).collect();
    undo(undo_file, &devices).expect("undoes");
    for (now, then) in left.iter().zip(before) {
        assert!(is_same(now, then), "it is not what it was");
    }
}

#[test]
fn a_power_cut_at_any_write_leaves_what_undoing_completes() {
    let mut random = Random(larder_testkit::seed(32));
    for patient in wounded() {
        let before: Vec<MemoryDevice> = patient.devices().map(|it| it.snapshot()).collect();
        let old = findings(patient.devices().map(|it| it.snapshot()).collect());
        let folder = Scratch::new();
        let undo_file = folder.path().join("undo");
        let recording = Recording::new();
        let attached = before.iter().map(|it| Arc::new(recording.attach(it)) as Arc<dyn Device>);
        let prepared = proved(attached.collect());
        assert_eq!(recording.position(), 0, "something was written before the repair was proved");
        let names: Vec<PathBuf> = before.iter().map(|_| PathBuf::from("device")).collect();
        prepared.apply(&names, &undo_file).expect("applies");
        let cuts = recording.position();
        assert!(cuts > 4, "{cuts} writes");
        let mut replay = recording.replay();
        for cut in 0..=cuts {
            replay.advance_to(cut);
            let mut cut_power = || {
                replay.power_cut(|_, _| {
                    if random.below(2) == 0 { Survival::Lost } else { Survival::Whole }
                })
            };
            if cut.is_multiple_of((cuts / CHECKED).max(1)) || cut == cuts {
                // Without undoing: the old state or the new one.
                let now = findings(cut_power());
                assert!(now == Some(0) || now == old, "{now:?} findings after cut {cut}");
            }
            undone(&undo_file, cut_power(), &before);
        }
    }
}

#[test]
fn a_call_that_fails_ends_the_repair_and_undoing_gives_back_what_was_there() {
    let patient = wounded().swap_remove(0);
    let before: Vec<MemoryDevice> = patient.devices().map(|it| it.snapshot()).collect();
    for operation in [Operation::Write, Operation::Flush] {
        for passed in 0.. {
            let folder = Scratch::new();
            let undo_file = folder.path().join("undo");
            let own: Vec<Arc<MemoryDevice>> =
                before.iter().map(|it| Arc::new(it.snapshot())).collect();
            let faulty = |it: &Arc<MemoryDevice>| {
                let device = FaultDevice::new(it.clone() as Arc<dyn Device>);
                device.inject(Fault::fail(operation).after(passed).times(1));
                Arc::new(device) as Arc<dyn Device>
            };
            let prepared = proved(own.iter().map(faulty).collect());
            let names: Vec<PathBuf> = own.iter().map(|_| PathBuf::from("device")).collect();
            let applied = prepared.apply(&names, &undo_file);
            let is_whole = applied.is_ok();
            let left = own.iter().map(|it| it.snapshot()).collect();
            undone(&undo_file, left, &before);
            if is_whole {
                assert!(passed > 0, "no {operation} was needed");
                break;
            }
        }
    }
}

#[test]
fn an_undo_file_that_is_cut_or_changed_changes_nothing() {
    let patient = wounded().swap_remove(0);
    let folder = Scratch::new();
    let undo_file = folder.path().join("undo");
    let devices: Vec<Arc<dyn Device>> = patient.devices().map(|it| it as _).collect();
    proved(devices.clone()).apply(&[PathBuf::from("device")], &undo_file).expect("applies");
    let after: Vec<MemoryDevice> = patient.devices().map(|it| it.snapshot()).collect();
    let whole = std::fs::read(&undo_file).expect("reads");
    let mut random = Random(larder_testkit::seed(33));
    for round in 0..40 {
        let mut bytes = whole.clone();
        if round % 2 == 0 {
            bytes.truncate(random.below(bytes.len()));
        } else {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        std::fs::write(&undo_file, bytes).expect("writes");
        undo(&undo_file, &devices).expect_err("it is not whole");
        for (now, then) in patient.devices().zip(&after) {
            assert!(is_same(&now, then), "round {round}");
        }
    }
}
