//! git in a large repository.

use std::path::Path;
use std::time::Instant;

use clap::Args;

use crate::mounts::{compare, shell};

/// Ask a large repository what changed: git status on both mounts
#[derive(Debug, Args)]
pub struct GitStatus {
    /// Files in the repository
    #[arg(long, default_value_t = 30_000)]
    files: usize,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 1)]
    repeats: usize,
}

/// Number of git status commands in a run.
const TIMES: usize = 5;

impl GitStatus {
    pub fn run(self) -> anyhow::Result<()> {
        compare("git status", "runs/s", self.repeats, |root| self.rate(root))
    }

    fn rate(&self, root: &Path) -> anyhow::Result<f64> {
        let directories = self.files / 100;
        shell(
            root,
            &format!(
                "git init -q .; git config gc.auto 0; git config maintenance.auto false; for d in $(seq {directories}); do mkdir d$d; \
                 for f in $(seq 100); do echo $d $f > d$d/$f; done; done; \
                 git add .; git -c user.name=a -c user.email=a commit -qm all; git status"
            ),
        )?;
        let start = Instant::now();
        for _ in 0..TIMES {
            shell(root, "git status --porcelain")?;
        }
        Ok(TIMES as f64 / start.elapsed().as_secs_f64())
    }
}
