//! One wound at a time, of every kind; and three at a time.
//!
//! Each repair ends in one of two ways: both checkers and the kernel call the file system sound, and
//! the undo file gives back the wounded one, byte for byte; or it is refused, and no byte changed.

use std::path::PathBuf;

use larder_device::MemoryDevice;
use larder_format::feature::IncompatFlags;
use larder_rescue::repair::{Prepared, Verdict, Wishes};
use larder_rescue::undo;
use larder_testkit::guard::KernelMount;
use larder_testkit::{Manifest, Scratch, oracle};

use crate::damage::{Base, Wound, all_wounds, image};
use crate::patient::Patient;
use crate::random::Random;
use crate::support::{differ, prepare, refs, superblock};

/// Wounds that no repair heals without losing what can be read, or without guessing.
const REFUSED: &[&str] = &[
    // Data that is not what it was.
    "a byte of data",
    "a checksum in a log",
    // Nothing tells which data a file had.
    "two file extents overlap",
    // Dropping the log would lose what was synced.
    "logged data without checksums",
    // A scrub does that.
    "a device that missed the last commit",
];

/// How a repair ended; the error is a breach of what is promised.
fn treat(patient: &Patient) -> Result<Option<String>, String> {
    let before: Vec<MemoryDevice> = patient.devices().map(|it| it.snapshot()).collect();
    let wishes = Wishes { check_data_csum: true, ..Wishes::default() };
    let prepared = prepare(patient, &wishes);
    if differ(patient, &before) {
        return Err("a byte changed before the repair was written".into());
    }
    let reason = match prepared {
        Err(error) => error.to_string(),
        Ok(Prepared { verdict: Verdict::Refused(reasons), after, .. }) => {
            format!("{}\n{after}", reasons.join("; "))
        }
        Ok(Prepared { verdict: Verdict::Sound, .. }) => return Err("it was called sound".into()),
        Ok(prepared) => {
            return heal(patient, &prepared, &before).map(|()| None);
        }
    };
    Ok(Some(reason))
}

/// Whether btrfs check knows the file system: simple quotas it refuses.
fn knows_progs(patient: &Patient) -> bool {
    !superblock(patient).has_incompat(IncompatFlags::SIMPLE_QUOTA)
}

fn heal(patient: &Patient, prepared: &Prepared, before: &[MemoryDevice]) -> Result<(), String> {
    let folder = Scratch::new();
    let undo_file = folder.path().join("undo");
    let names: Vec<PathBuf> = before.iter().map(|_| PathBuf::from("device")).collect();
    prepared.apply(&names, &undo_file).map_err(|error| error.to_string())?;
    let report = patient.check()?;
    if !report.is_clean() {
        return Err(format!("it is not sound:\n{report}"));
    }
    let files = Scratch::new();
    let saved = patient.save(files.path());
    if knows_progs(patient) {
        oracle::check(&saved, true).map_err(|said| format!("btrfs check: {}", said.stderr))?;
    } else {
        let mount = KernelMount::try_open(&saved, "noatime").map_err(|said| said.to_string())?;
        assert!(!Manifest::of_tree(mount.path()).entries.is_empty());
    }
    undo::undo(&undo_file, &refs(patient)).map_err(|error| error.to_string())?;
    if differ(patient, before) {
        return Err("undoing it did not give back what was there".into());
    }
    Ok(())
}

fn treat_all(bases: &[Base]) {
    let mut breaches = Vec::new();
    for base in bases {
        let image = image(*base);
        let sound = Patient::load(image.devices());
        for wound in all_wounds().iter().filter(|wound| wound.base == *base) {
            let patient = sound.copy();
            (wound.plant)(&patient);
            let outcome = treat(&patient);
            println!("{base:?}: {}: {outcome:?}", wound.name);
            let is_refused = REFUSED.contains(&wound.name);
            match outcome {
                Err(breach) => breaches.push(format!("{}: {breach}", wound.name)),
                Ok(Some(reason)) if !is_refused => {
                    breaches.push(format!("{}: refused: {reason}", wound.name));
                }
                Ok(None) if is_refused => breaches.push(format!("{}: is healed now", wound.name)),
                Ok(_) => {}
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn wounds_of_a_plain_image_are_healed_or_left() {
    treat_all(&[Base::Plain]);
}

#[test]
fn wounds_of_other_images_are_healed_or_left() {
    treat_all(&Base::OTHERS);
}

#[test]
fn three_wounds_are_healed_or_left_together() {
    const ROUNDS: usize = 10;
    let image = image(Base::Plain);
    let sound = Patient::load(image.devices());
    let wounds = all_wounds();
    let of_files = |it: &&Wound| it.base == Base::Plain && !it.name.contains("leaf");
    let plain: Vec<&Wound> = wounds.iter().filter(of_files).collect();
    let seed = larder_testkit::seed(31);
    let mut random = Random(seed);
    let mut healed = 0;
    for _ in 0..ROUNDS * larder_testkit::effort() as usize {
        let chosen: Vec<&Wound> = (0..3).map(|_| plain[random.below(plain.len())]).collect();
        let names: Vec<&str> = chosen.iter().map(|wound| wound.name).collect();
        let patient = sound.copy();
        let plant = || {
            for wound in &chosen {
                (wound.plant)(&patient);
            }
        };
        // A wound may find no sound block to be planted in.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(plant)).is_err() {
            continue;
        }
        let outcome = treat(&patient);
        println!("{names:?}: {outcome:?}");
        healed += usize::from(matches!(outcome, Ok(None)));
        outcome.unwrap_or_else(|breach| panic!("seed {seed}: {names:?}: {breach}"));
    }
    assert!(healed > 0, "none was healed");
}
