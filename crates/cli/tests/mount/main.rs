//! Mounts as users have them: through the command, checked against POSIX, real programs, both
//! checkers and the kernel, which mounts the result.

mod btrfs_progs;
mod cached;
mod commands;
mod crash;
mod ending;
mod full;
mod handles;
mod killed;
mod largest;
mod ledger;
mod limits;
mod listing;
mod memory;
mod on_mount;
mod open_files;
mod options;
mod partitions;
mod posix;
mod privileges;
mod programs;
mod qcow2;
mod receive;
mod refusals;
mod remount;
mod reports;
mod rings;
mod same_as_btrfs;
mod second_mount;
mod send;
mod subvolumes;
mod support;
mod sync;
mod trace;
mod users;
