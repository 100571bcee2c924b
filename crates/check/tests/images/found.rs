//! The check finds every kind of damage, planted in a sound image that the kernel made.

use std::collections::BTreeSet;

use larder_check::Kind;
use larder_testkit::{Scratch, oracle};

use crate::damage::{Base, Progs, Wound, all_wounds, image};
use crate::patient::Patient;

/// Plants all wounds of one image and returns those that were not found as expected.
fn failures_on(base: Base) -> Vec<String> {
    let image = image(base);
    let sound = Patient::load(image.devices());
    let report = sound.check().expect("opens");
    assert!(report.is_clean(), "{base:?} before any wound:\n{report}");
    assert_eq!(report.skipped, [""; 0], "{base:?}");
    let wounds = all_wounds().into_iter().filter(|wound| wound.base == base);
    wounds.filter_map(|wound| failure(&sound, &wound)).collect()
}

fn failure(sound: &Patient, wound: &Wound) -> Option<String> {
    let patient = sound.copy();
    (wound.plant)(&patient);
    let found = match patient.check() {
        Err(error) => return Some(format!("{}: cannot be opened: {error}", wound.name)),
        Ok(report) if report.count_of(wound.kind) == 0 => {
            return Some(format!("{}: no {}:\n{report}", wound.name, wound.kind));
        }
        Ok(report) => report,
    };
    let folder = Scratch::new();
    let progs = oracle::check(&patient.save(folder.path()), true);
    let is_seen = if progs.is_err() { Progs::Sees } else { Progs::DoesNot };
    let line = |kinds: &larder_check::KindFindings| format!("{} {}", kinds.kind, kinds.count);
    let kinds: Vec<String> = found.kinds.iter().map(line).collect();
    println!("{}: btrfs check {is_seen:?}; {}", wound.name, kinds.join(", "));
    (is_seen != wound.progs).then(|| format!("{}: btrfs check {is_seen:?} it", wound.name))
}

fn check_images(bases: &[Base]) {
    let failures: Vec<String> = bases.iter().flat_map(|base| failures_on(*base)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn damage_of_a_plain_image_is_found() {
    check_images(&[Base::Plain]);
}

#[test]
fn damage_of_other_images_is_found() {
    check_images(&Base::OTHERS);
}

#[test]
fn there_are_forty_kinds_of_damage_and_more() {
    let wounds = all_wounds();
    let names: BTreeSet<&str> = wounds.iter().map(|wound| wound.name).collect();
    assert_eq!(names.len(), wounds.len(), "two wounds have the same name");
    let kinds: BTreeSet<Kind> = wounds.iter().map(|wound| wound.kind).collect();
    assert!(wounds.len() >= 80 && kinds.len() >= 60, "{} of {}", wounds.len(), kinds.len());
}
