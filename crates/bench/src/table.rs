//! Both sides of a comparison, repeated and side by side.

use std::time::Duration;

use crate::measure::Run;

/// Repeated runs of both sides, in turns so that drift affects both alike.
pub struct Comparison {
    workload: &'static str,
    theirs: Vec<Run>,
    ours: Vec<Run>,
}

impl Comparison {
    /// Runs both sides `repeats` times in turns.
    pub fn measure(
        workload: &'static str,
        repeats: usize,
        mut theirs: impl FnMut() -> anyhow::Result<Run>,
        mut ours: impl FnMut() -> anyhow::Result<Run>,
    ) -> anyhow::Result<Self> {
        let mut comparison = Self { workload, theirs: Vec::new(), ours: Vec::new() };
        for _ in 0..repeats {
            comparison.theirs.push(theirs()?);
            comparison.ours.push(ours()?);
        }
        Ok(comparison)
    }

    /// Prints the best run of each side and the ratio of the two.
    pub fn print(&self, their_name: &str) {
        let (theirs, ours) = (best(&self.theirs), best(&self.ours));
        println!("{:<24} {:>10} {:>14}", self.workload, "seconds", "peak memory");
        for (name, run) in [(their_name, theirs), ("larder", ours)] {
            println!("{name:<24} {:>10.3} {:>14}", run.elapsed.as_secs_f64(), memory(run));
        }
        let ratio = theirs.elapsed.as_secs_f64() / ours.elapsed.as_secs_f64();
        let memory_ratio = if ours.peak_bytes > 0 && theirs.peak_bytes > 0 {
            format!(", {:.2}x the memory", ours.peak_bytes as f64 / theirs.peak_bytes as f64)
        } else {
            String::new()
        };
        println!("larder is {ratio:.2}x as fast{memory_ratio}\n");
    }
}

fn best(runs: &[Run]) -> Run {
    let elapsed = runs.iter().map(|run| run.elapsed).min().unwrap_or(Duration::ZERO);
    let peak_bytes = runs.iter().map(|run| run.peak_bytes).max().unwrap_or(0);
    Run { elapsed, peak_bytes }
}

fn memory(run: Run) -> String {
    if run.peak_bytes == 0 {
        return "-".into();
    }
    format!("{:.0} MiB", run.peak_bytes as f64 / f64::from(1 << 20))
}
