//! `larder-bench`: workloads side by side with the kernel and btrfs-progs, in one run.
//!
//! Every workload prints both sides and their ratio. Nothing here passes or fails.
#![forbid(unsafe_code)]
#![allow(unreachable_pub)]

mod image;
mod measure;
mod mounts;
mod rounds;
mod series;
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
/// How the cost grows: larder-bench --sizes 150000,600000,2400000 create
#[derive(Debug, Parser)]
#[command(name = "larder-bench", version)]
struct Bench {
    /// Run the workload once for each of these sizes, in files, extents, syncs or MiB
    #[arg(long, value_name = "N", value_delimiter = ',')]
    sizes: Vec<u64>,
    #[command(subcommand)]
    workload: workload::Workload,
}

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let Bench { sizes, workload } = Bench::parse();
    if sizes.is_empty() { workload.run() } else { series::run(&sizes, &workload) }
}
