//! A balance that was interrupted: a repair keeps all content, and the kernel goes on with it.

use std::slice::from_ref;

use larder_rescue::repair::{Verdict, Wishes};
use larder_testkit::guard::KernelMount;
use larder_testkit::manifest::assert_same;
use larder_testkit::moments::Moments;
use larder_testkit::{Manifest, Scratch, oracle, sparse_file};

use crate::patient::Patient;
use crate::support::prepare;

#[test]
fn what_a_balance_left_in_the_middle_is_repaired() {
    let moments = Moments::of_a_balance();
    let copy = moments.within_relocations.last().expect("one is within a relocation");
    let scratch = Scratch::new();
    let original = scratch.path().join("original");
    sparse_file::sparse_copy(copy, &original).expect("copies");
    let patient = Patient::load(from_ref(&original));
    let expected = {
        let mount = KernelMount::open(from_ref(&original), "ro,noatime,skip_balance");
        Manifest::of_tree(mount.path())
    };
    let wishes = Wishes { init_extent_tree: true, check_data_csum: true, ..Wishes::default() };
    let prepared = prepare(&patient, &wishes).expect("opens");
    let Verdict::Proved = prepared.verdict else {
        panic!("{:?}\n{}", prepared.verdict, prepared.after);
    };
    prepared.apply(&["device".into()], &scratch.path().join("undo")).expect("applies");
    let saved = patient.save(scratch.path());
    oracle::check(&saved, true).unwrap_or_else(|said| panic!("{said}"));
    let mount = KernelMount::open(&saved, "noatime");
    assert_same(&expected, &Manifest::of_tree(mount.path()));
    drop(mount);
    oracle::check(&saved, true).unwrap_or_else(|said| panic!("after the balance: {said}"));
}
