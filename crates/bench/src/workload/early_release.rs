//! Ablation: early parent release on insert.

use clap::Args;
use larder_btree::LockPolicy;

use crate::trees::TreeRun;

/// Ablation: release parents before an insert searches its leaf, off and on
///
/// Threads create files in a tree in memory. "from level 1" write-locks leaf and parent on the way
/// down, so that the parent is released by the leaf's shape alone; "from the leaf" and "fingers"
/// are Larder's additions: parents are write-locked only when an insert turns out to need them.
#[derive(Debug, Args)]
pub struct EarlyRelease {
    /// Files to create
    #[arg(long, default_value_t = 400_000)]
    files: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "2,4,16")]
    threads: Vec<u64>,
}

impl EarlyRelease {
    pub fn run(self) -> anyhow::Result<()> {
        let locked_above =
            LockPolicy { first_write_level: 1, fingers: false, ..LockPolicy::default() };
        let sides = [
            ("from level 1, off", LockPolicy { early_release: false, ..locked_above }),
            ("from level 1, on", locked_above),
            ("from the leaf", LockPolicy { fingers: false, ..LockPolicy::default() }),
            ("fingers", LockPolicy::default()),
        ];
        println!(
            "{:7} {:20} {:>10} {:>9} {:>9} {:>12} {:>9} {:>12}",
            "threads",
            "early release",
            "creates/s",
            "blocked",
            "wait ms",
            "parent locks",
            "held ms",
            "released"
        );
        for &threads in &self.threads {
            for (name, policy) in sides {
                let run = TreeRun::measure(policy, self.files, threads)?;
                let locks = run.stats.locks;
                println!(
                    "{threads:7} {name:20} {:10.0} {:9} {:9.1} {:12} {:9.1} {:12}",
                    run.rate(),
                    locks.blocked,
                    locks.wait_nanos as f64 / 1e6,
                    locks.internal_write_locks,
                    locks.internal_write_held_nanos as f64 / 1e6,
                    run.stats.early_releases,
                );
            }
        }
        Ok(())
    }
}
