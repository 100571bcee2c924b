//! What the tests share.

use std::ops::ControlFlow;
use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_format::Superblock;
use larder_rescue::repair::{self, Prepared, RepairError, Wishes};
use larder_volume::{OpenOptions, Volume};

use crate::patient::Patient;

pub(crate) fn refs(patient: &Patient) -> Vec<Arc<dyn Device>> {
    patient.devices().map(|it| it as Arc<dyn Device>).collect()
}

/// The superblock of a patient that can be opened.
pub(crate) fn superblock(patient: &Patient) -> Arc<Superblock> {
    let options = OpenOptions { any_state: true, ..OpenOptions::default() };
    Volume::open(refs(patient), &options).expect("opens").superblock()
}

pub(crate) fn prepare(patient: &Patient, wishes: &Wishes) -> Result<Prepared, RepairError> {
    repair::prepare(refs(patient), wishes, &|_| ControlFlow::Continue(()))
}

/// Whether any byte of the patient's devices differs.
pub(crate) fn differ(patient: &Patient, before: &[MemoryDevice]) -> bool {
    patient.devices().zip(before).any(|(now, then)| !is_same(&now, then))
}

/// Whether two devices have the same content.
pub(crate) fn is_same(one: &MemoryDevice, other: &MemoryDevice) -> bool {
    let mut is_same = true;
    one.each_difference(other, |offset, part| {
        let mut old = vec![0; part.len()];
        other.read_at(&mut old, offset).expect("reads");
        is_same &= old == part;
    });
    is_same
}
