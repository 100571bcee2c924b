//! The tree checker on leaves that break one rule each, compared with the kernel's own checker, and
//! on everything that the kernel wrote.
//!
//! [`cases`] is one table: leaves that are sound or break one rule. [`rules`] passes each to
//! Larder, [`kernel`] to the kernel, and [`images`] goes the other way round.

mod cases;
mod images;
mod kernel;
mod leaf;
mod rules;
mod scan;
