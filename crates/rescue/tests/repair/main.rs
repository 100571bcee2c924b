//! Repairs of damaged images, judged by both checkers and the kernel.
//!
//! The damage is what the tests of the checker plant: one for every kind of finding.
#![allow(dead_code, reason = "tests of the checker use the rest of what they share")]

#[path = "../../../check/tests/images/damage/mod.rs"]
mod damage;
#[path = "../../../check/tests/images/patient.rs"]
mod patient;
#[path = "../../../check/tests/images/random.rs"]
mod random;

mod accidents;
mod lost;
mod mutants;
mod power_cuts;
mod support;
mod unfinished;
mod wounds;
