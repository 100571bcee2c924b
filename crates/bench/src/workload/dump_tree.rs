//! Dumping a subvolume's whole tree.

use std::ffi::OsStr;

use clap::Args;

use super::ImageOptions;
use crate::measure::Run;
use crate::program::larder_program;
use crate::table::Comparison;

/// Dump a subvolume's tree as text: btrfs inspect-internal dump-tree against larder's
#[derive(Debug, Args)]
pub struct DumpTree {
    #[command(flatten)]
    pub(super) image: ImageOptions,
}

impl DumpTree {
    pub fn run(self) -> anyhow::Result<()> {
        let image = self.image.image()?;
        let larder = larder_program()?;
        let run = |program: &OsStr, group: &str| {
            let arguments = [group, "dump-tree", "-t", "5"].map(OsStr::new);
            Run::of(program, arguments.into_iter().chain([image.path().as_os_str()]))
        };
        Comparison::measure(
            "dump-tree -t 5",
            self.image.repeats,
            || run(OsStr::new("btrfs"), "inspect-internal"),
            || run(larder.as_os_str(), "inspect"),
        )?
        .print("btrfs-progs");
        Ok(())
    }
}
