//! Ablation: delayed items.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use larder::{OpenOptions, Queue, Stats, Subvolume, Tuning};
use larder_testkit::Scratch;

use crate::image::make_empty;
use crate::measure::own_processor_time;
use crate::rounds::{ROUNDS, Rounds};

/// Ablation: directory indexes and inode items go into the trees one by one, or are delayed and go
/// in batches
///
/// Threads create empty files, each in a directory of its own. Processor time is that of all
/// threads, with the sync at the end.
#[derive(Debug, Args)]
pub struct Delayed {
    /// Files to create
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,16")]
    threads: Vec<u64>,
    /// Rounds, each with both sides
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Make the images here; existing content is lost
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

/// The result of one side.
struct Side {
    created: Duration,
    /// With the sync.
    synced: Duration,
    processor: Duration,
    stats: Stats,
}

impl Delayed {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = self.image.clone().unwrap_or_else(|| scratch.path().join("delayed.img"));
        println!(
            "{:7} {:9} {:>10} {:>29} {:>10} {:>11} {:>9} {:>12} {:>8}",
            "threads",
            "items",
            "creates/s",
            "delayed is as fast",
            "with sync",
            "cpu us/file",
            "blocked",
            "parent locks",
            "flushes"
        );
        let sides = [("direct", Queue::Direct), ("delayed", Queue::Delayed)];
        for &threads in &self.threads {
            let rounds = Rounds::measure(self.rounds, &sides, |(_, queue)| {
                self.measure(&image, threads, *queue)
            })?;
            let rate = |time: Duration| self.files as f64 / time.as_secs_f64();
            let created = |run: &Side| rate(run.created);
            for (side, (name, _)) in sides.iter().enumerate() {
                let against = (side > 0).then(|| rounds.ratio(side, 0, created));
                let locks = |run: &Side| run.stats.changes.locks;
                println!(
                    "{threads:7} {name:9} {:10.0} {:>29} {:10.0} {:11.2} {:9.0} {:12.0} {:8.0}",
                    rounds.median(side, created),
                    against.map_or("-".into(), |ratio| ratio.to_string()),
                    rounds.median(side, |run| rate(run.synced)),
                    rounds.median(side, |run| run.processor.as_secs_f64()) * 1e6
                        / self.files as f64,
                    rounds.median(side, |run| locks(run).blocked as f64),
                    rounds.median(side, |run| locks(run).internal_write_locks as f64),
                    rounds.median(side, |run| run.stats.delayed.flushes as f64),
                );
            }
        }
        Ok(())
    }

    fn measure(&self, image: &Path, threads: u64, queue: Queue) -> anyhow::Result<Side> {
        make_empty(image, 16 << 30)?;
        let tuning = Tuning { queue, ..Tuning::default() };
        let options = OpenOptions::new().write(true).commit_interval(None).tuning(tuning);
        let filesystem = options.open([image])?;
        let root = filesystem.subvolume("/")?;
        let (since, busy) = (Instant::now(), own_processor_time());
        thread::scope(|scope| {
            let start = |thread| {
                let root = &root;
                scope.spawn(move || create(root, thread, self.files / threads))
            };
            let workers: Vec<_> = (0..threads).map(start).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })?;
        let created = since.elapsed();
        filesystem.sync()?;
        let synced = since.elapsed();
        let processor = own_processor_time().saturating_sub(busy);
        Ok(Side { created, synced, processor, stats: filesystem.stats() })
    }
}

fn create(root: &Subvolume, thread: u64, files: u64) -> anyhow::Result<()> {
    root.create_directory(format!("d{thread}"), 0o755)?;
    for file in 0..files {
        root.create(format!("d{thread}/{file:08x}~~~~~~~~~~~~"), 0o644)?;
    }
    Ok(())
}
