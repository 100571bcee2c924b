//! `larder-bench`: workloads side by side with the kernel and btrfs-progs, in one run.
//!
//! Every workload prints both sides and their ratio. Nothing here passes or fails.
#![forbid(unsafe_code)]
#![allow(unreachable_pub)]

mod image;
mod measure;
mod mounts;
mod snapshots;
mod table;
mod trees;
mod workload;

use clap::Parser;

/// Measure Larder against the kernel's btrfs and btrfs-progs.
///
/// Needs root, loop devices and btrfs-progs. Build with --release, and the larder program too:
/// cargo build --release -p larder-cli -p larder-bench
///
/// Example: larder-bench dump-tree --files 500000
#[derive(Debug, Parser)]
#[command(name = "larder-bench", version)]
struct Bench {
    #[command(subcommand)]
    workload: workload::Workload,
}

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    Bench::parse().workload.run()
}
