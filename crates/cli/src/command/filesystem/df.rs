//! `larder filesystem df`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larder::Space;

use super::{kind_name, profile_name};
use crate::command::Outcome;
use crate::global::Global;
use crate::output::stdout;
use crate::print::{Fields, write_texts};
use crate::source::Source;
use crate::units::Units;

/// Show how much space is allocated for each purpose, and how much of it is used
///
/// The global reserve that `btrfs filesystem df` shows of a mounted file system is in memory only,
/// and left out.
///
/// Examples:
///   larder filesystem df disk.img
///   larder filesystem df ~/mnt
///   larder --format json filesystem df disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Df {
    #[command(flatten)]
    units: Units,
    #[command(flatten)]
    source: Source,
    /// The image file or block device, or a directory of a file system that is mounted
    #[arg(value_name = "IMAGE[:/PATH] or PATH")]
    image: PathBuf,
}

impl Df {
    pub fn run(self, global: &Global) -> Outcome {
        let mut out = stdout();
        let spaces = self.source.overview(self.image.as_os_str())?.space()?;
        if global.is_json() {
            let objects: Vec<_> = spaces.iter().map(fields).collect();
            write_texts(&mut out, "filesystem-df", &objects)?;
            return Ok(ExitCode::SUCCESS);
        }
        for space in spaces {
            writeln!(
                out,
                "{}, {}: total={}, used={}",
                kind_name(space.kind),
                profile_name(space.profile),
                self.units.show(space.total_bytes),
                self.units.show(space.used_bytes),
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn fields(space: &Space) -> Fields {
    vec![
        ("bg-type", kind_name(space.kind).to_owned()),
        ("bg-profile", profile_name(space.profile)),
        ("total", space.total_bytes.to_string()),
        ("used", space.used_bytes.to_string()),
    ]
}
