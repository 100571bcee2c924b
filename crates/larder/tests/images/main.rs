//! Images of the kernel, read as the kernel reads them, and opened when they are damaged.

mod damaged_trees;
mod devices;
mod hostile;
mod large;
mod matrix;
mod memory;
mod paths;
mod reading;
mod refusing_devices;
mod resolve;
mod returning_devices;
mod scan;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod threads;
