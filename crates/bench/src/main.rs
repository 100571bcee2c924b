//! `larder-bench`: workloads side by side with the kernel and btrfs-progs, in one run.
//!
//! Every workload prints both sides and their ratio. Nothing here passes or fails.
#![forbid(unsafe_code)]
#![allow(unreachable_pub)]

mod claims;
mod image;
mod measure;
mod mounts;
mod processors;
mod program;
mod rounds;
mod series;
mod snapshots;
mod table;
mod trees;
mod workload;

use anyhow::bail;
use clap::Parser;

/// Measure Larder against the kernel's btrfs and btrfs-progs.
///
/// Needs root, loop devices and btrfs-progs. Build with --release, and the larder program too:
/// cargo build --release -p larder-cli -p larder-bench
///
/// Example: larder-bench dump-tree --files 500000
/// How the cost grows: larder-bench --sizes 150000,600000,2400000 create
#[derive(Debug, Parser)]
#[command(name = "larder-bench", version, arg_required_else_help = true)]
struct Bench {
    /// Run the workload once for each of these sizes, in files, extents, syncs or MiB
    #[arg(long, value_name = "N", value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Run the commands of docs/benchmarks.md whose output it shows, and say which ratios there no
    /// longer hold
    #[arg(long, conflicts_with = "sizes")]
    check_claims: bool,
    #[command(subcommand)]
    workload: Option<workload::Workload>,
}

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let Bench { sizes, check_claims, workload } = Bench::parse();
    match workload {
        None if check_claims => claims::check(),
        Some(_) if check_claims => bail!("--check-claims runs all workloads of the page"),
        None => bail!("name a workload: larder-bench --help lists them"),
        Some(workload) if sizes.is_empty() => workload.run(),
        Some(workload) => series::run(&sizes, &workload),
    }
}
