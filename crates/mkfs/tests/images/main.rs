//! New file systems, judged by the kernel and btrfs-progs.

mod common;
mod content;
mod interrupted;
mod options;
mod profiles;
mod refusals;
mod reproducible;
