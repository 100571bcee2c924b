//! `larder filesystem show`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use larder::{DeviceInfo, Overview};
use serde::Serialize;

use super::label;
use crate::command::Outcome;
use crate::global::Global;
use crate::output::stdout;
use crate::print::{Name, write_json};
use crate::source::Source;
use crate::units::LongUnits;

/// Show label, uuid and devices of a file system
///
/// Examples:
///   larder filesystem show disk.img
///   larder filesystem show ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Show {
    /// Only a file system that is mounted: IMAGE or PATH is a directory of one
    #[arg(short, long, conflicts_with = "all_devices")]
    mounted: bool,
    /// Only what devices say themselves: IMAGE or PATH is an image file or a block device
    #[arg(short = 'd', long)]
    all_devices: bool,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    source: Source,
    /// The image file or block device, or a directory of a file system that is mounted
    #[arg(value_name = "IMAGE or PATH")]
    image: PathBuf,
}

impl Show {
    pub fn run(self, global: &Global) -> Outcome {
        let LongUnits(units) = self.units;
        let is_mounted = self.source.mounted_directory(self.image.as_os_str())?.is_some();
        let shown = self.image.display();
        ensure!(is_mounted || !self.mounted, "{shown}: no directory of a mounted file system");
        ensure!(!is_mounted || !self.all_devices, "{shown}: neither an image file nor a device");
        let filesystem = self.source.overview(self.image.as_os_str())?;
        let mut out = stdout();
        if global.is_json() {
            write_json(&mut out, "filesystem-list", &[Shown::new(&*filesystem)?])?;
            return Ok(ExitCode::SUCCESS);
        }
        let label = filesystem.label()?;
        let label = if label.is_empty() { "none".into() } else { format!("'{}'", label.display()) };
        let devices = filesystem.devices()?;
        writeln!(out, "Label: {label}  uuid: {}", filesystem.uuid()?)?;
        let used = units.show(filesystem.used_bytes()?);
        writeln!(out, "\tTotal devices {} FS bytes used {used}", devices.len())?;
        for device in &devices {
            let Some(name) = &device.name else {
                writeln!(out, "\tdevid {:>4} size 0 used 0 path  MISSING", device.id)?;
                continue;
            };
            let path = real_path(name);
            writeln!(
                out,
                "\tdevid {:>4} size {} used {} path {}",
                device.id,
                units.show(device.total_bytes),
                units.show(device.allocated_bytes),
                path.display(),
            )?;
        }
        writeln!(out)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The path of a device, behind links.
fn real_path(name: &str) -> PathBuf {
    std::fs::canonicalize(name).unwrap_or_else(|_| name.into())
}

/// A file system as JSON, with the names of btrfs-progs.
#[derive(Serialize)]
struct Shown {
    label: Option<Name>,
    uuid: String,
    total_devices: usize,
    used: u64,
    #[serde(rename = "device-list")]
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    devid: u64,
    size: u64,
    used: u64,
    /// None if it is missing.
    path: Option<Name>,
}

impl Shown {
    fn new(filesystem: &dyn Overview) -> anyhow::Result<Self> {
        let devices: Vec<Device> = filesystem.devices()?.iter().map(Device::new).collect();
        Ok(Self {
            label: label::name_of(&filesystem.label()?),
            uuid: filesystem.uuid()?.to_string(),
            total_devices: devices.len(),
            used: filesystem.used_bytes()?,
            devices,
        })
    }
}

impl Device {
    fn new(info: &DeviceInfo) -> Self {
        Self {
            devid: info.id,
            size: info.total_bytes,
            used: info.allocated_bytes,
            path: info.name.as_deref().map(|name| (&real_path(name)).into()),
        }
    }
}
