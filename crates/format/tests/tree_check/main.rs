//! The tree checker against rules broken one by one, against the kernel's own checker, and against
//! everything that the kernel wrote.
//!
//! [`cases`] is one table: leaves that are sound or break one rule. [`rules`] asks Larder about each of
//! them, [`kernel`] asks the kernel, and [`images`] goes the other way round.

mod cases;
mod images;
mod kernel;
mod leaf;
mod rules;
mod scan;
