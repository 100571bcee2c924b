//! The commands on images, as a user runs them.

mod archives;
mod balance;
mod bulk_options;
mod changing;
mod changing_devices;
mod commands;
mod devices;
mod first_steps;
mod interrupted;
mod json;
mod matrix;
mod messages;
mod mkfs_options;
mod names;
mod occupied;
mod options;
mod owners;
mod partitions;
mod qcow2;
mod receive;
mod replace;
mod report;
mod rescue;
mod restore;
mod scrub;
mod support;
