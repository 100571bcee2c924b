//! Creating empty files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use larder::OpenOptions;
use larder_testkit::{KernelMount, Scratch};

use crate::image::make_empty;
use crate::measure::own_peak_bytes;

/// The rounds of fs_mark, each with a part of the files.
const ROUNDS: u64 = 5;

/// Create empty files from several threads, each in a directory of its own: fs_mark on the kernel's
/// btrfs against the library
///
/// Prints files/s of both sides, without the sync at the end and with it.
#[derive(Debug, Args)]
pub struct Create {
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Files, all threads together
    #[arg(long, default_value_t = 600_000)]
    files: u64,
    /// Make the images here; existing content is lost
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Bytes of the image
    #[arg(long, default_value_t = 16 << 30)]
    image_bytes: u64,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

/// The result of one run.
#[derive(Clone, Copy)]
struct Timed {
    created: Duration,
    synced: Duration,
}

impl Create {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = self.image.clone().unwrap_or_else(|| scratch.path().join("create.img"));
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..self.repeats.max(1) {
            make_empty(&image, self.image_bytes)?;
            theirs.push(self.by_kernel(&image)?);
            make_empty(&image, self.image_bytes)?;
            ours.push(self.by_larder(&image)?);
        }
        let [theirs, ours] = [theirs, ours].map(|runs| self.rates(&runs));
        for (name, (created, synced)) in [("kernel, fs_mark", theirs), ("larder", ours)] {
            println!("{name}: {created:.0} files/s");
            println!("{name}, with the sync: {synced:.0} files/s");
        }
        println!(
            "larder is {:.2}x as fast, with the sync {:.2}x; its peak memory was {} MiB",
            ours.0 / theirs.0,
            ours.1 / theirs.1,
            own_peak_bytes() >> 20
        );
        Ok(())
    }

    /// The best rates in files per second: of creating, and with the sync.
    fn rates(&self, runs: &[Timed]) -> (f64, f64) {
        let rate = |time: &dyn Fn(&Timed) -> Duration| {
            let best = runs.iter().map(time).min().unwrap_or_default();
            self.files as f64 / best.as_secs_f64()
        };
        (rate(&|run| run.created), rate(&|run| run.created + run.synced))
    }

    fn by_kernel(&self, image: &Path) -> anyhow::Result<Timed> {
        let mount = KernelMount::open(&[image.to_owned()], "ssd");
        let per_round = self.files / self.threads / ROUNDS;
        let mut command = Command::new("fs_mark");
        command.args(["-S", "0", "-s", "0", "-k", "-L", &ROUNDS.to_string()]);
        command.args(["-n", &per_round.to_string(), "-t", &self.threads.to_string()]);
        for number in 1..=self.threads {
            command.arg("-d").arg(mount.path().join(format!("d{number}")));
        }
        // It writes its report to its working directory.
        let report = Scratch::new();
        command.current_dir(report.path());
        let since = Instant::now();
        let output = command.output().context("cannot run fs_mark")?;
        let created = since.elapsed();
        ensure!(output.status.success(), "fs_mark failed: {}", output.status);
        let since = Instant::now();
        mount.sync();
        Ok(Timed { created, synced: since.elapsed() })
    }

    fn by_larder(&self, image: &Path) -> anyhow::Result<Timed> {
        let filesystem = OpenOptions::new().write(true).open([image])?;
        let root = filesystem.subvolume("/")?;
        let since = Instant::now();
        thread::scope(|scope| {
            let start = |number: u64| {
                let root = &root;
                scope.spawn(move || -> anyhow::Result<()> {
                    let folder = format!("d{number}");
                    root.create_directory(&folder, 0o755)?;
                    for file in 0..self.files / self.threads {
                        // As long as the names of fs_mark.
                        root.create(
                            format!("{folder}/{file:08x}~~~~~~~~larder~~{number:016}"),
                            0o644,
                        )?;
                    }
                    Ok(())
                })
            };
            let workers: Vec<_> = (1..=self.threads).map(start).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })?;
        let created = since.elapsed();
        let since = Instant::now();
        filesystem.sync()?;
        let synced = since.elapsed();
        drop((root, filesystem));
        ensure!(fs::metadata(image)?.len() == self.image_bytes, "the image changed its size");
        Ok(Timed { created, synced })
    }
}
