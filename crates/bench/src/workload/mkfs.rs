//! Making a file system from a directory.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use larder_testkit::Scratch;

use crate::measure::Run;
use crate::program::larder_program;
use crate::table::Comparison;

/// Make an image from a directory: mkfs.btrfs --rootdir against larder mkfs --rootdir
#[derive(Debug, Args)]
pub struct Mkfs {
    /// The directory
    #[arg(long, value_name = "DIR", default_value = "/usr")]
    rootdir: PathBuf,
    /// Bytes of the image
    #[arg(long, default_value_t = 16 << 30)]
    image_bytes: u64,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

impl Mkfs {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = scratch.path().join("image");
        let larder = larder_program()?;
        Comparison::measure(
            "mkfs --rootdir",
            self.repeats,
            || self.make(&image, OsStr::new("mkfs.btrfs"), &[]),
            || self.make(&image, larder.as_os_str(), &["mkfs"]),
        )?
        .print("btrfs-progs");
        Ok(())
    }

    fn make(&self, image: &Path, program: &OsStr, first: &[&str]) -> anyhow::Result<Run> {
        File::create(image)?.set_len(self.image_bytes)?;
        let options = first.iter().chain(&["-q", "-f", "--rootdir"]).map(OsStr::new);
        Run::of(program, options.chain([self.rootdir.as_os_str(), image.as_os_str()]))
    }
}
