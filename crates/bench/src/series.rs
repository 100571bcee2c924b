//! A workload in several sizes, to see how its cost grows.

use std::env;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::workload::Workload;

/// Runs `workload` once for each of `sizes`, each in a process of its own, so that the peak memory
/// is that of one size.
///
/// # Errors
///
/// The workload has no size, keeps an image of one size, or fails.
pub fn run(sizes: &[u64], workload: &Workload) -> anyhow::Result<()> {
    let unit = workload.size_option().context("this workload has no size")?;
    ensure!(!workload.keeps_image(), "an image that is kept has one size: leave --image out");
    let arguments = env::args_os().skip(1).skip_while(|argument| !is_workload(argument));
    let arguments: Vec<_> = arguments.collect();
    for size in sizes {
        println!("== {size} {unit}");
        let mut one = Command::new(env::current_exe()?);
        one.args(&arguments).arg(format!("--{unit}")).arg(size.to_string());
        let status = one.status()?;
        ensure!(status.success(), "{one:?} failed: {status}");
    }
    Ok(())
}

fn is_workload(argument: &std::ffi::OsStr) -> bool {
    use clap::Subcommand;
    argument.to_str().is_some_and(Workload::has_subcommand)
}
