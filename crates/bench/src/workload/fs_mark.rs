//! Creating empty files with fs_mark.

use std::path::Path;

use anyhow::Context;
use clap::Args;

use crate::mounts::{compare, shell};

/// Create empty files in two directories with two threads: fs_mark on both mounts
#[derive(Debug, Args)]
pub struct FsMark {
    /// Files that each thread makes in a round
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 2)]
    repeats: usize,
}

impl FsMark {
    pub fn run(self) -> anyhow::Result<()> {
        compare("fs_mark, empty files", "files/s", self.repeats, |root| self.rate(root))
    }

    /// The mean of the rounds.
    fn rate(&self, root: &Path) -> anyhow::Result<f64> {
        let (files, rounds) = (self.files, self.rounds);
        let said = shell(
            root,
            &format!(
                "mkdir d1 d2; fs_mark -S 0 -L {rounds} -n {files} -s 0 -t 2 -k -d d1 -d d2 -l /dev/null"
            ),
        )?;
        let rates: Vec<f64> = said.lines().filter_map(rate_in).collect();
        anyhow::ensure!(!rates.is_empty(), "fs_mark says nothing: {said}");
        Ok(rates.iter().sum::<f64>() / rates.len() as f64)
    }
}

/// The fourth of five numbers in a line: files in a second.
fn rate_in(line: &str) -> Option<f64> {
    let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() == 5).map(|numbers| numbers[3])
}

/// The number after `word` in `text`.
pub(super) fn number_after(text: &str, word: &str) -> anyhow::Result<f64> {
    let rest = text.split(word).nth(1).with_context(|| format!("no {word} in {text}"))?;
    let number = rest.split_whitespace().next().context("nothing after it")?;
    number.parse().with_context(|| number.to_owned())
}
