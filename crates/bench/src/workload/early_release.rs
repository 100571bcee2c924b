//! Ablation: early parent release on insert.

use clap::Args;
use larder_btree::LockPolicy;

use crate::rounds::{ROUNDS, Rounds};
use crate::trees::TreeRun;

/// Ablation: release parents before an insert searches its leaf, off and on
///
/// Threads create files in a tree in memory. "from level 1" write-locks leaf and parent on the way
/// down, so that the parent is released by the leaf's shape alone; "from the leaf" and "fingers"
/// are Larder's additions: parents are write-locked only when an insert turns out to need them.
#[derive(Debug, Args)]
pub struct EarlyRelease {
    /// Files to create
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "2,4,16")]
    threads: Vec<u64>,
    /// Rounds, each with every side once
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
}

impl EarlyRelease {
    pub fn run(self) -> anyhow::Result<()> {
        let sides = sides();
        println!(
            "{:7} {:20} {:>10} {:>29} {:>9} {:>12} {:>9} {:>12}",
            "threads",
            "early release",
            "creates/s",
            "against the row before",
            "blocked",
            "parent locks",
            "held ms",
            "released"
        );
        for &threads in &self.threads {
            let rounds = Rounds::measure(self.rounds, &sides, |(_, policy)| {
                TreeRun::measure(*policy, self.files, threads)
            })?;
            for (side, (name, _)) in sides.iter().enumerate() {
                let median =
                    |value: fn(&TreeRun) -> u64| rounds.median(side, |run| value(run) as f64);
                let against =
                    side.checked_sub(1).map(|base| rounds.ratio(side, base, TreeRun::rate));
                println!(
                    "{threads:7} {name:20} {:10.0} {:>29} {:9.0} {:12.0} {:9.1} {:12.0}",
                    rounds.median(side, TreeRun::rate),
                    against.map_or("-".into(), |ratio| ratio.to_string()),
                    median(|run| run.stats.locks.blocked),
                    median(|run| run.stats.locks.internal_write_locks),
                    median(|run| run.stats.locks.internal_write_held_nanos) / 1e6,
                    median(|run| run.stats.early_releases),
                );
            }
        }
        Ok(())
    }
}

/// The ways to take locks, from the most that are held to the least.
pub(super) fn sides() -> [(&'static str, LockPolicy); 4] {
    let locked_above = LockPolicy { first_write_level: 1, fingers: false, ..LockPolicy::default() };
    [
        ("from level 1, off", LockPolicy { early_release: false, ..locked_above }),
        ("from level 1, on", locked_above),
        ("from the leaf", LockPolicy { fingers: false, ..LockPolicy::default() }),
        ("fingers", LockPolicy::default()),
    ]
}
