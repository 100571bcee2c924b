//! Scrubbing: every copy of everything, on one device.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;

use clap::Args;
use larder_testkit::{KernelMount, Scratch};

use crate::image::make_empty;
use crate::measure::{Run, drop_caches};
use crate::program::larder_program;
use crate::table::Comparison;

/// Bytes of a file.
const FILE_BYTES: usize = 1 << 20;

/// Scrub a file system on one device: the kernel's scrub against larder's of the same image
#[derive(Debug, Args)]
pub struct Scrub {
    /// MiB of data
    #[arg(long, default_value_t = 4096)]
    mebibytes: usize,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

impl Scrub {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = scratch.path().join("disk.img");
        make_empty(&image, (self.mebibytes as u64 + 1024) << 20)?;
        let mount = KernelMount::open(std::slice::from_ref(&image), "");
        let mut content = vec![0; FILE_BYTES];
        for number in 0..self.mebibytes {
            content.chunks_mut(8).zip(number as u64..).for_each(|(bytes, at)| {
                bytes.copy_from_slice(&at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
            });
            File::create(mount.path().join(format!("file-{number}")))?.write_all(&content)?;
        }
        drop(mount);
        let larder = larder_program()?;
        let run = |program: &OsStr, place: &OsStr| {
            drop_caches()?;
            Run::of(program, ["scrub", "start", "-B"].map(OsStr::new).into_iter().chain([place]))
        };
        let theirs = || {
            let mount = KernelMount::open(std::slice::from_ref(&image), "noatime");
            run(OsStr::new("btrfs"), mount.path().as_os_str())
        };
        let ours = || run(larder.as_os_str(), image.as_os_str());
        Comparison::measure("scrub", self.repeats, theirs, ours)?.print("the kernel");
        Ok(())
    }
}
