//! One wound at a time, of every kind.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use larder_device::Device;
use larder_rescue::repair::{Verdict, Wishes, prepare};

use crate::damage::{Base, Wound, all_wounds, image};
use crate::patient::Patient;

fn cured(base: Base) -> BTreeMap<&'static str, String> {
    let image = image(base);
    let sound = Patient::load(image.devices());
    let wounds = all_wounds().into_iter().filter(|wound| wound.base == base);
    wounds.map(|wound| (wound.name, outcome(&sound, &wound))).collect()
}

fn outcome(sound: &Patient, wound: &Wound) -> String {
    let patient = sound.copy();
    (wound.plant)(&patient);
    let devices = patient.devices().map(|it| it as Arc<dyn Device>).collect();
    let wishes = Wishes { check_data_csum: true, ..Wishes::default() };
    match prepare(devices, &wishes, &|_| ControlFlow::Continue(())) {
        Err(error) => format!("error: {error}"),
        Ok(prepared) => match prepared.verdict {
            Verdict::Refused(reasons) => {
                format!("refused: {}\n{:?}\n{}", reasons.join("; "), prepared.notes, prepared.after)
            }
            verdict => format!("{verdict:?} {:?}", prepared.notes),
        },
    }
}

#[test]
fn wounds_of_a_plain_image() {
    for (name, outcome) in cured(Base::Plain) {
        println!("== {name}: {outcome}");
    }
}
