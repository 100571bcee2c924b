//! `larder filesystem show`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::command::Outcome;
use crate::source::Source;
use crate::units::Units;

/// Show label, uuid and devices of a file system
///
/// Examples:
///   larder filesystem show disk.img
///   larder filesystem show ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Show {
    #[command(flatten)]
    units: Units,
    #[command(flatten)]
    source: Source,
    /// The image file or block device, or a directory of a file system that is mounted
    #[arg(value_name = "IMAGE or PATH")]
    image: PathBuf,
}

impl Show {
    pub fn run(self) -> Outcome {
        let filesystem = self.source.overview(self.image.as_os_str())?;
        let mut out = io::stdout().lock();
        let label = filesystem.label()?;
        let label = if label.is_empty() { "none".into() } else { format!("'{}'", label.display()) };
        let devices = filesystem.devices()?;
        writeln!(out, "Label: {label}  uuid: {}", filesystem.uuid()?)?;
        let used = self.units.show(filesystem.used_bytes()?);
        writeln!(out, "\tTotal devices {} FS bytes used {used}", devices.len())?;
        for device in &devices {
            let Some(name) = &device.name else {
                writeln!(out, "\tdevid {:>4} size 0 used 0 path  MISSING", device.id)?;
                continue;
            };
            let path = std::fs::canonicalize(name).unwrap_or_else(|_| name.into());
            writeln!(
                out,
                "\tdevid {:>4} size {} used {} path {}",
                device.id,
                self.units.show(device.total_bytes),
                self.units.show(device.allocated_bytes),
                path.display(),
            )?;
        }
        writeln!(out)?;
        Ok(ExitCode::SUCCESS)
    }
}
