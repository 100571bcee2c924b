//! Walking a tree with names and attributes.

use std::time::Instant;

use clap::Args;

use crate::mounts::{compare, shell};

/// Walk a tree of empty files with attributes: find with stat on both mounts, cold and warm
#[derive(Debug, Args)]
pub struct FindStat {
    /// Files in the tree
    #[arg(long, default_value_t = 200_000)]
    files: usize,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 1)]
    repeats: usize,
}

impl FindStat {
    pub fn run(self) -> anyhow::Result<()> {
        let files = self.files;
        let make = format!(
            "for d in $(seq $(({files} / 1000))); do mkdir d$d; (cd d$d; seq 1000 | xargs touch); done"
        );
        let find = |root: &std::path::Path| -> anyhow::Result<f64> {
            let start = Instant::now();
            shell(root, "find . -printf '%m %s %T@ %p\\n' > /dev/null")?;
            Ok(files as f64 / start.elapsed().as_secs_f64())
        };
        compare("find with stat, cold", "files/s", self.repeats, |root| {
            shell(root, &make)?;
            crate::measure::drop_caches()?;
            find(root)
        })?;
        compare("find with stat, warm", "files/s", self.repeats, |root| {
            shell(root, &make)?;
            find(root)?;
            find(root)
        })
    }
}
