//! dbench: a file server's load.

use clap::Args;

use super::fs_mark::number_after;
use crate::mounts::{compare, shell};

/// A file server's load, with fsync: dbench on both mounts
#[derive(Debug, Args)]
pub struct Dbench {
    /// Clients
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// How long each run lasts
    #[arg(long, default_value_t = 20)]
    seconds: usize,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 1)]
    repeats: usize,
}

impl Dbench {
    pub fn run(self) -> anyhow::Result<()> {
        let Self { clients, seconds, repeats } = self;
        compare(&format!("dbench, {clients} clients"), "MB/s", repeats, |root| {
            let said = shell(root, &format!("dbench -t {seconds} -D . {clients}"))?;
            number_after(&said, "Throughput")
        })
    }
}
