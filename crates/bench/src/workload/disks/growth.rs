//! How work on disks grows with what there is.

use std::path::Path;

use anyhow::ensure;
use clap::Args;
use larder::{OpenOptions, SnapshotKind};
use larder_testkit::Scratch;

use super::{Copied, Work, add};
use crate::image::make_empty;
use crate::program::larder_program;

const SECTOR: u64 = 4096;
/// Extents of a file.
const EXTENTS_PER_FILE: u64 = 1000;

/// Scrub, balance, convert, remove, replace and shrink images of larder's with more and more extents
/// and snapshots: how time and memory grow
///
/// Each extent is one sector. Each snapshot has a file of its own.
#[derive(Debug, Args)]
pub struct DiskGrowth {
    /// Extents
    #[arg(long, default_value_t = 100_000)]
    extents: u64,
    /// Numbers of snapshots
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000")]
    snapshots: Vec<u64>,
}

impl DiskGrowth {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = scratch.path().join("disk.img");
        self.fill(&image)?;
        let larder = larder_program()?;
        println!(
            "{:<18} {:>10} {:>10} {:>10} {:>11} {:>12}",
            "work", "extents", "snapshots", "seconds", "us/extent", "peak memory"
        );
        let mut there = 0;
        for &snapshots in &self.snapshots {
            ensure!(there <= snapshots, "numbers of snapshots ascend");
            take_snapshots(&image, there..snapshots)?;
            there = snapshots;
            for work in Work::ALL {
                self.measure(work, &larder, &image, snapshots)?;
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        work: Work,
        larder: &Path,
        image: &Path,
        snapshots: u64,
    ) -> anyhow::Result<()> {
        let copied = Copied::new(image)?;
        let (place, other) = (copied.image.as_os_str(), copied.other.as_os_str());
        if work.needs_second() {
            add(larder, other, place)?;
        }
        let run = work.run(larder, place, other, self.len_bytes() / 2)?;
        let seconds = run.elapsed.as_secs_f64();
        println!(
            "{:<18} {:>10} {snapshots:>10} {seconds:>10.3} {:>11.2} {:>8.0} MiB",
            work.name(),
            self.extents,
            seconds * 1e6 / self.extents as f64,
            run.peak_bytes as f64 / f64::from(1 << 20)
        );
        Ok(())
    }

    /// Twice as much as everything takes, and more.
    fn len_bytes(&self) -> u64 {
        (2 * self.extents * (SECTOR + 1024) + (2 << 30)) & !(SECTOR - 1)
    }

    /// Writes every other sector of each file, so that each is an extent.
    fn fill(&self, image: &Path) -> anyhow::Result<()> {
        make_empty(image, self.len_bytes())?;
        let filesystem = OpenOptions::new().write(true).open([image])?;
        let root = filesystem.subvolume("/")?;
        root.create_directory("files", 0o755)?;
        for number in 0..self.extents.div_ceil(EXTENTS_PER_FILE) {
            let file = root.create(format!("files/{number}"), 0o644)?;
            let extents = (self.extents - number * EXTENTS_PER_FILE).min(EXTENTS_PER_FILE);
            for sector in 0..extents {
                file.write_at(&(number + sector).to_le_bytes().repeat(512), 2 * sector * SECTOR)?;
            }
        }
        Ok(filesystem.close()?)
    }
}

fn take_snapshots(image: &Path, numbers: std::ops::Range<u64>) -> anyhow::Result<()> {
    let filesystem = OpenOptions::new().write(true).open([image])?;
    let root = filesystem.subvolume("/")?;
    for number in numbers {
        root.create(format!("files/own{number}"), 0o644)?.write_at(&[7; 5000], 0)?;
        root.snapshot(format!("snapshot{number}"), SnapshotKind::ReadOnly)?;
    }
    Ok(filesystem.close()?)
}
