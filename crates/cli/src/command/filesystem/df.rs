//! `larder filesystem df`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larder::{GlobalReserve, Space};

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::{Fields, write_texts};
use crate::source::Source;
use crate::space::{kind_name, profile_name};
use crate::units::Units;

/// The kind of the global reserve, as btrfs-progs names it.
const RESERVE: &str = "GlobalReserve";

/// Show how much space is allocated for each purpose, and how much of it is used
///
/// The global reserve is space for trees that is set aside for deletions and commits. Only a file
/// system that is mounted has it: it is in memory.
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
        let filesystem = self.source.overview(self.image.as_os_str())?;
        let (spaces, reserve) = (filesystem.space()?, filesystem.global_reserve()?);
        if global.is_json() {
            let objects: Vec<_> =
                spaces.iter().map(fields).chain(reserve.map(fields_of_reserve)).collect();
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
        if let Some(GlobalReserve { total_bytes, used_bytes }) = reserve {
            let (total, used) = (self.units.show(total_bytes), self.units.show(used_bytes));
            writeln!(out, "{RESERVE}, single: total={total}, used={used}")?;
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

fn fields_of_reserve(reserve: GlobalReserve) -> Fields {
    vec![
        ("bg-type", RESERVE.to_owned()),
        ("bg-profile", "single".to_owned()),
        ("total", reserve.total_bytes.to_string()),
        ("used", reserve.used_bytes.to_string()),
    ]
}
