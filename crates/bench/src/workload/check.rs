//! Checking a whole image.

use std::ffi::OsStr;

use clap::Args;

use super::ImageOptions;
use crate::measure::Run;
use crate::program::larder_program;
use crate::table::Comparison;

/// Check an image: btrfs check against larder check
#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub(super) image: ImageOptions,
}

impl Check {
    pub fn run(self) -> anyhow::Result<()> {
        let image = self.image.image()?;
        let larder = larder_program()?;
        let run =
            |program: &OsStr| Run::of(program, [OsStr::new("check"), image.path().as_os_str()]);
        Comparison::measure(
            "check",
            self.image.repeats,
            || run(OsStr::new("btrfs")),
            || run(larder.as_os_str()),
        )?
        .print("btrfs-progs");
        Ok(())
    }
}
