//! Devices: files, block devices and memory, and who uses them.

mod exclusive;
mod file;
mod models;
mod support;
