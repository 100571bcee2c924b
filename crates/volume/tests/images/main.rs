//! Volumes and the kernel: each reads what the other wrote.

mod kernel_reads;
mod opening;
mod profiles;
mod superblock_ranges;
mod support;
