//! Ablation: the extent map of an open file.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use larder::{File, FindExtents, OpenOptions, Tuning};
use larder_testkit::Scratch;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::image::make_empty;
use crate::measure::own_processor_time;
use crate::rounds::{ROUNDS, Rounds};

const SECTOR: u64 = 4096;

/// Ablation: random reads of a file of many extents, which are searched for each time or cached
///
/// Each extent is one sector. The whole file is read once before, so that tree blocks are in memory
/// on both sides.
#[derive(Debug, Args)]
pub struct Extents {
    /// Extents of the file
    #[arg(long, default_value_t = 47_000)]
    extents: u64,
    /// Reads of a sector, of all threads together
    #[arg(long, default_value_t = 100_000)]
    reads: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,16")]
    threads: Vec<u64>,
    /// Rounds, each with both sides
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Make the image here; existing content is lost
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

/// The result of one run.
#[derive(Clone, Copy)]
struct Run {
    elapsed: Duration,
    processor: Duration,
}

impl Extents {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = self.image.clone().unwrap_or_else(|| scratch.path().join("extents.img"));
        make_empty(&image, 2 << 30)?;
        self.make_file(&image)?;
        println!(
            "{:7} {:10} {:>10} {:>29} {:>11}",
            "threads", "extents", "reads/s", "remembered is as fast", "cpu us/read"
        );
        let sides = [("searched", FindExtents::InTrees), ("remembered", FindExtents::InMemory)];
        for &threads in &self.threads {
            let rounds = Rounds::measure(self.rounds, &sides, |(_, extents)| {
                self.measure(&image, threads, *extents)
            })?;
            let rate = |run: &Run| self.reads as f64 / run.elapsed.as_secs_f64();
            for (side, (name, _)) in sides.iter().enumerate() {
                let against = (side > 0).then(|| rounds.ratio(side, 0, rate));
                println!(
                    "{threads:7} {name:10} {:10.0} {:>29} {:11.2}",
                    rounds.median(side, rate),
                    against.map_or("-".into(), |ratio| ratio.to_string()),
                    rounds.median(side, |run| run.processor.as_secs_f64()) * 1e6
                        / self.reads as f64,
                );
            }
        }
        Ok(())
    }

    /// Writes the sectors of a file in random order, so that each becomes an extent.
    fn make_file(&self, image: &Path) -> anyhow::Result<()> {
        let filesystem = OpenOptions::new().write(true).open([image])?;
        let file = filesystem.subvolume("/")?.create("fragmented", 0o644)?;
        let mut sectors: Vec<u64> = (0..self.extents).collect();
        sectors.shuffle(&mut SmallRng::seed_from_u64(1));
        for sector in sectors {
            file.write_at(&[sector as u8; SECTOR as usize], sector * SECTOR)?;
        }
        Ok(filesystem.sync()?)
    }

    fn measure(&self, image: &Path, threads: u64, extents: FindExtents) -> anyhow::Result<Run> {
        let tuning = Tuning { extents, ..Tuning::default() };
        let filesystem = OpenOptions::new().write(true).tuning(tuning).open([image])?;
        let file = filesystem.subvolume("/")?.open_file("fragmented")?;
        file.read_at(&mut vec![0; (self.extents * SECTOR) as usize], 0)?;
        let (since, busy) = (Instant::now(), own_processor_time());
        thread::scope(|scope| {
            let start = |thread| {
                let file = &file;
                scope.spawn(move || self.read(file, thread, self.reads / threads))
            };
            let workers: Vec<_> = (0..threads).map(start).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })?;
        Ok(Run { elapsed: since.elapsed(), processor: own_processor_time().saturating_sub(busy) })
    }

    fn read(&self, file: &File, seed: u64, reads: u64) -> anyhow::Result<()> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut buf = vec![0; SECTOR as usize];
        for _ in 0..reads {
            let sector = random.random_range(0..self.extents);
            file.read_at(&mut buf, sector * SECTOR)?;
            anyhow::ensure!(buf[0] == sector as u8, "sector {sector} is wrong");
        }
        Ok(())
    }
}
