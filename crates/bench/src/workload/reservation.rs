//! Ablation: the unit of reservations for delayed items.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use larder::{DelayedStats, OpenOptions, Reserve, Tuning};
use larder_testkit::Scratch;

use crate::image::make_empty;

/// Ablation: delayed items reserve space for each item, or for each leaf that they will touch
///
/// One thread creates empty files in one directory, and in many by turns. The peak is the most
/// space that delayed items reserved: items without space are not delayed, so a smaller image has a
/// lower peak.
#[derive(Debug, Args)]
pub struct Reservation {
    /// Files to create
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// Directories to spread them over
    #[arg(long, default_value_t = 1000)]
    directories: u64,
    /// Bytes of the image
    #[arg(long, default_value_t = 64 << 30)]
    image_bytes: u64,
    /// Make the images here; existing content is lost
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

impl Reservation {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = self.image.clone().unwrap_or_else(|| scratch.path().join("reservation.img"));
        println!(
            "{:11} {:9} {:>17} {:>10} {:>8} {:>16}",
            "directories",
            "reserves",
            "peak reserved MiB",
            "creates/s",
            "flushes",
            "items per flush"
        );
        for directories in [1, self.directories] {
            for (name, reserve) in [("per item", Reserve::PerItem), ("per leaf", Reserve::PerLeaf)]
            {
                let (created, delayed) = self.measure(&image, directories, reserve)?;
                println!(
                    "{directories:11} {name:9} {:17.1} {:10.0} {:8} {:16.1}",
                    delayed.peak_reserved_bytes as f64 / f64::from(1 << 20),
                    self.files as f64 / created.as_secs_f64(),
                    delayed.flushes,
                    delayed.flushed_items as f64 / delayed.flushes as f64,
                );
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        image: &Path,
        directories: u64,
        reserve: Reserve,
    ) -> anyhow::Result<(Duration, DelayedStats)> {
        make_empty(image, self.image_bytes)?;
        let tuning = Tuning { reserve, ..Tuning::default() };
        let options = OpenOptions::new().write(true).commit_interval(None).tuning(tuning);
        let filesystem = options.open([image])?;
        let root = filesystem.subvolume("/")?;
        for directory in 0..directories {
            root.create_directory(format!("d{directory}"), 0o755)?;
        }
        let since = Instant::now();
        for file in 0..self.files {
            root.create(format!("d{}/{file:08x}~~~~~~~~~~~~", file % directories), 0o644)?;
        }
        filesystem.sync()?;
        Ok((since.elapsed(), filesystem.stats().delayed))
    }
}
