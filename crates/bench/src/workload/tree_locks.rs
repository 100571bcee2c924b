//! Ablation: how threads wait for tree blocks.

use clap::Args;
use larder_btree::{LockPolicy, Waiting};

use crate::rounds::{ROUNDS, Rounds};
use crate::trees::TreeRun;

/// Ablation: locks of tree blocks that spin and then sleep, only spin, or only sleep
///
/// Threads create files in a tree in memory and look them up.
#[derive(Debug, Args)]
pub struct TreeLocks {
    /// Files to create
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "2,16,200")]
    threads: Vec<u64>,
    /// Rounds, each with every side once
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
}

impl TreeLocks {
    pub fn run(self) -> anyhow::Result<()> {
        let sides = [
            ("adaptive", Waiting::Adaptive),
            ("spinning", Waiting::Spinning),
            ("sleeping", Waiting::Sleeping),
        ];
        println!(
            "{:7} {:10} {:>10} {:>29} {:>9} {:>10} {:>10}",
            "threads", "lock", "creates/s", "adaptive is as fast", "blocked", "wait ms", "worst ms"
        );
        for &threads in &self.threads {
            let rounds = Rounds::measure(self.rounds, &sides, |(_, waiting)| {
                let policy = LockPolicy { waiting: *waiting, ..LockPolicy::default() };
                TreeRun::measure(policy, self.files, threads)
            })?;
            for (side, (name, _)) in sides.iter().enumerate() {
                let against = (side > 0).then(|| rounds.ratio(0, side, TreeRun::rate));
                println!(
                    "{threads:7} {name:10} {:10.0} {:>29} {:9.0} {:10.1} {:10.2}",
                    rounds.median(side, TreeRun::rate),
                    against.map_or("-".into(), |ratio| ratio.to_string()),
                    rounds.median(side, |run| run.stats.locks.blocked as f64),
                    rounds.median(side, |run| run.stats.locks.wait_nanos as f64 / 1e6),
                    rounds.median(side, |run| run.worst.as_secs_f64() * 1e3),
                );
            }
        }
        Ok(())
    }
}
