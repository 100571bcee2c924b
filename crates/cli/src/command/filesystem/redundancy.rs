//! `larder filesystem redundancy`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use larder::{Incomplete, Overview, Space, SpaceKind};
use serde_json::{Value, json};

use crate::command::device::on::{Changing, judge, with_progress};
use crate::device_errors::outdated;
use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::write_json;
use crate::source::Source;
use crate::space::kind_name;
use crate::units::Units;

/// Show what has fewer copies than it should, and complete it
///
/// A device that refuses a write, while others have a copy of everything, gets no more writes. So
/// does one that was missing. What they missed is copied to them by --complete, and when the file
/// system is mounted again.
///
/// While a device is missing, new block groups have as many copies as the others allow. Larder
/// gives them the rest when the device comes back, and when it is removed or replaced; the kernel
/// does not, and one more lost device takes what has one copy. The profile that block groups should
/// have is the safest that others of their kind have.
///
/// Exit codes:
///   0  everything has all copies
///   1  something has not, or it failed
///
/// Examples:
///   larder filesystem redundancy disk.img
///   larder filesystem redundancy --complete ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Redundancy {
    /// Make the copies that are missing
    #[arg(long)]
    complete: bool,
    #[command(flatten)]
    units: Units,
    #[command(flatten)]
    source: Source,
    /// An image of the file system, or a directory of one that is mounted, by larder or by the
    /// kernel
    #[arg(value_name = "IMAGE or PATH")]
    image: OsString,
}

impl Redundancy {
    pub fn run(self, global: &Global) -> Outcome {
        if self.complete {
            self.make_copies()?;
        }
        let filesystem = self.source.overview_of_present(&self.image)?;
        let incomplete = Space::incomplete(&filesystem.space()?);
        let missing: Vec<u64> = missing(filesystem.as_ref());
        let outdated: Vec<u64> = outdated(filesystem.as_ref());
        let mut out = stdout();
        if global.is_json() {
            let groups: Vec<Value> = incomplete.iter().map(fields).collect();
            let all = json!({
                "missing-devices": missing,
                "outdated-devices": outdated,
                "incomplete": groups,
            });
            write_json(&mut out, "filesystem-redundancy", &all)?;
        } else {
            for devid in &missing {
                writeln!(
                    out,
                    "Device {devid} is missing: 'larder replace start' or 'larder device remove'"
                )?;
            }
            for devid in &outdated {
                writeln!(out, "Device {devid} missed commits: --complete brings it up to date")?;
            }
            for groups in &incomplete {
                let used = self.units.show(groups.used_bytes);
                let (kind, profile) = (kind_name(groups.kind), groups.profile);
                writeln!(out, "{kind}, {profile}: used={used}, should be {}", groups.wanted)?;
            }
        }
        let is_whole = missing.is_empty() && outdated.is_empty() && incomplete.is_empty();
        if is_whole && !global.is_json() {
            writeln!(out, "Everything has all copies")?;
        }
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn make_copies(&self) -> anyhow::Result<()> {
        match Changing::open(&self.source, &self.image)? {
            Changing::Image(filesystem) => {
                judge(&with_progress(|tell| filesystem.complete_redundancy(tell))?)
            }
            Changing::Mounted(directory) => by_mount(&directory, &self.image),
        }
    }
}

/// Asks a server of larder; the kernel has a balance for it.
fn by_mount(directory: &File, path: &OsStr) -> anyhow::Result<()> {
    if larder_ioctl::complete_redundancy(directory)? {
        return Ok(());
    }
    let filesystem = larder::MountedFilesystem::open(Path::new(path))?;
    let incomplete = Space::incomplete(&filesystem.space()?);
    if incomplete.is_empty() {
        return Ok(());
    }
    let mut filters = Vec::new();
    for groups in incomplete {
        let letter = match groups.kind {
            SpaceKind::Data => 'd',
            SpaceKind::Metadata | SpaceKind::DataAndMetadata => 'm',
            SpaceKind::System => 's',
        };
        let filter = format!("-{letter}convert={},soft", groups.wanted);
        if !filters.contains(&filter) {
            filters.push(filter);
        }
    }
    let (filters, path) = (filters.join(" "), path.display());
    bail!("{path}: the kernel completes copies by 'btrfs balance start {filters} {path}'")
}

fn missing(filesystem: &dyn Overview) -> Vec<u64> {
    let devices = filesystem.devices().unwrap_or_default().into_iter();
    devices.filter(|device| device.name.is_none()).map(|device| device.id).collect()
}

fn fields(groups: &Incomplete) -> Value {
    json!({
        "bg-type": kind_name(groups.kind),
        "bg-profile": groups.profile.to_string(),
        "wanted": groups.wanted.to_string(),
        "used": groups.used_bytes,
    })
}
