//! Ablation: how threads wait for tree blocks.

use clap::Args;
use larder_btree::{LockPolicy, Waiting};

use crate::trees::TreeRun;

/// Ablation: locks of tree blocks that spin and then sleep, only spin, or only sleep
///
/// Threads create files in a tree in memory and look them up.
#[derive(Debug, Args)]
pub struct TreeLocks {
    /// Files to create
    #[arg(long, default_value_t = 400_000)]
    files: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "2,16,200")]
    threads: Vec<u64>,
}

impl TreeLocks {
    pub fn run(self) -> anyhow::Result<()> {
        let sides = [
            ("adaptive", Waiting::Adaptive),
            ("spinning", Waiting::Spinning),
            ("sleeping", Waiting::Sleeping),
        ];
        println!(
            "{:7} {:10} {:>10} {:>9} {:>10} {:>10}",
            "threads", "lock", "creates/s", "blocked", "wait ms", "worst ms"
        );
        for &threads in &self.threads {
            for (name, waiting) in sides {
                let policy = LockPolicy { waiting, ..LockPolicy::default() };
                let run = TreeRun::measure(policy, self.files, threads)?;
                println!(
                    "{threads:7} {name:10} {:10.0} {:9} {:10.1} {:10.2}",
                    run.rate(),
                    run.stats.locks.blocked,
                    run.stats.locks.wait_nanos as f64 / 1e6,
                    run.worst.as_secs_f64() * 1e3,
                );
            }
        }
        Ok(())
    }
}
