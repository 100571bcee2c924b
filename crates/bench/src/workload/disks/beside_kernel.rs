//! The kernel and larder, each on copies of one image.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use clap::Args;
use larder_testkit::{KernelMount, LoopDevice, Scratch};

use super::{Copied, Work, add};
use crate::image::make_empty;
use crate::measure::Run;
use crate::program::larder_program;
use crate::table::Comparison;

/// Bytes of a file.
const FILE_BYTES: usize = 1 << 20;

/// Look after a disk: scrub, full balance, convert, remove, replace and shrink, the kernel on its mount
/// against larder on the same image
///
/// Each run has a copy of the image, of whose files the first quarter was deleted.
#[derive(Debug, Args)]
pub struct Disks {
    /// MiB of data
    #[arg(long, default_value_t = 4096)]
    mebibytes: u64,
    /// Runs of each side, in turns; the best of each counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

impl Disks {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = scratch.path().join("disk.img");
        self.fill(&image)?;
        let larder = larder_program()?;
        for work in Work::ALL {
            let theirs = || self.by_kernel(work, &image);
            let ours = || self.by_larder(work, &larder, &image);
            Comparison::measure(work.name(), self.repeats, theirs, ours)?.print("the kernel");
        }
        Ok(())
    }

    /// Bytes of the device, in which a quarter is free.
    fn len_bytes(&self) -> u64 {
        (self.mebibytes * 5 / 4 + 512) << 20
    }

    /// Bytes to which it shrinks: what lies after them moves to where files were deleted.
    fn shrunk_bytes(&self) -> u64 {
        (self.mebibytes * 15 / 16 + 512) << 20
    }

    fn fill(&self, image: &Path) -> anyhow::Result<()> {
        make_empty(image, self.len_bytes())?;
        let mount = KernelMount::open(&[image.to_owned()], "");
        let mut content = vec![0; FILE_BYTES];
        let files = self.mebibytes * 5 / 4;
        let path = |number: u64| mount.path().join(format!("file-{number}"));
        for number in 0..files {
            content.chunks_mut(8).zip(number..).for_each(|(bytes, at)| {
                bytes.copy_from_slice(&at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
            });
            File::create(path(number))?.write_all(&content)?;
        }
        mount.sync();
        for number in 0..files - self.mebibytes {
            fs::remove_file(path(number))?;
        }
        Ok(())
    }

    fn by_kernel(&self, work: Work, image: &Path) -> anyhow::Result<Run> {
        let copied = Copied::new(image)?;
        let btrfs = Path::new("btrfs");
        let other = LoopDevice::attach(&copied.other);
        let mount = KernelMount::open(std::slice::from_ref(&copied.image), "noatime");
        let (place, other) = (mount.path().as_os_str(), other.path().as_os_str());
        if work.needs_second() {
            add(btrfs, other, place)?;
        }
        work.run(btrfs, place, other, self.shrunk_bytes())
    }

    fn by_larder(&self, work: Work, larder: &Path, image: &Path) -> anyhow::Result<Run> {
        let copied = Copied::new(image)?;
        let (place, other) = (copied.image.as_os_str(), copied.other.as_os_str());
        if work.needs_second() {
            add(larder, other, place)?;
        }
        work.run(larder, place, other, self.shrunk_bytes())
    }
}
