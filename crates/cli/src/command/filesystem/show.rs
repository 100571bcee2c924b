//! `larder filesystem show`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use larder::{
    DeviceInfo, Filesystem, FilesystemName, OpenOptions, Overview, Uuid, find_filesystems,
    find_filesystems_named, is_still_on,
};
use larder_objects::is_url;
use serde::Serialize;

use super::label;
use crate::devices::is_name;
use crate::global::Global;
use crate::message::message;
use crate::operand::parse_uuid;
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout;
use crate::present::{self, Mounted};
use crate::print::{Name, write_json};
use crate::source::Source;
use crate::target::names_image;
use crate::units::LongUnits;

/// Show label, uuid and devices of file systems
///
/// Without an operand it shows all that are mounted, by larder or by the kernel, and then all others
/// that are on block devices, attached loop devices among them.
///
/// Examples:
///   larder filesystem show disk.img
///   larder filesystem show ~/mnt
///   larder filesystem show
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Show {
    /// Only file systems that are mounted; a path is a directory of one
    #[arg(short, long, conflicts_with = "all_devices")]
    mounted: bool,
    /// Only file systems on block devices; a path is an image file or a block device
    #[arg(short = 'd', long)]
    all_devices: bool,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    source: Source,
    /// The image file or block device, a directory of a file system that is mounted, or the uuid or
    /// label of a file system that is mounted or on block devices
    #[arg(value_name = "IMAGE, PATH, UUID or LABEL")]
    operand: Option<PathBuf>,
}

impl Show {
    pub fn run(self, global: &Global) -> Outcome {
        let (filesystems, failures) = match &self.operand {
            Some(operand) if names_place(operand) => (vec![self.at(operand)?], 0),
            Some(operand) => self.named(operand)?,
            None => self.found(find_filesystems)?,
        };
        let mut out = stdout();
        if global.is_json() {
            let shown = filesystems.iter().map(|filesystem| Shown::new(&**filesystem));
            let shown = shown.collect::<anyhow::Result<Vec<_>>>()?;
            write_json(&mut out, "filesystem-list", &shown)?;
        } else {
            filesystems.iter().try_for_each(|filesystem| self.write(&mut out, &**filesystem))?;
        }
        Ok(exit_code(failures))
    }

    /// The file system at `place`: a path, or an image by another name.
    fn at(&self, place: &Path) -> anyhow::Result<Box<dyn Overview>> {
        let is_mounted = self.source.mounted_directory(place.as_os_str())?.is_some();
        let shown = place.display();
        ensure!(is_mounted || !self.mounted, "{shown}: no directory of a mounted file system");
        ensure!(!is_mounted || !self.all_devices, "{shown}: neither an image file nor a device");
        self.source.overview_of_present(place.as_os_str())
    }

    /// The file system with this uuid, or those with this label.
    fn named(&self, name: &Path) -> anyhow::Result<(Vec<Box<dyn Overview>>, usize)> {
        let uuid = name.to_str().and_then(|text| parse_uuid(text).ok());
        let label = FilesystemName::Label(name.as_os_str().as_bytes().to_vec());
        let names: Vec<_> = uuid.map(FilesystemName::Uuid).into_iter().chain([label]).collect();
        let (mut filesystems, failures) = self.found(|| find_filesystems_named(&names))?;
        let is_it = |filesystem: &dyn Overview| {
            let is_its_uuid = || uuid.is_some() && filesystem.uuid().ok() == uuid;
            is_its_uuid() || filesystem.label().is_ok_and(|label| label == name.as_os_str())
        };
        filesystems.retain(|filesystem| is_it(&**filesystem));
        ensure!(
            !filesystems.is_empty() || failures > 0,
            "{}: neither a file or device, nor the uuid or label of a file system that is mounted \
             or on a block device",
            name.display()
        );
        Ok((filesystems, failures))
    }

    /// All that are mounted, and those that `find` finds on devices, as far as they are wanted; and
    /// how many could not be opened.
    fn found(
        &self,
        find: impl Fn() -> BTreeMap<Uuid, larder::Result<Vec<PathBuf>>>,
    ) -> anyhow::Result<(Vec<Box<dyn Overview>>, usize)> {
        let on_devices = if self.mounted { BTreeMap::new() } else { find() };
        let mounted = present::mounted()?;
        let uuids: BTreeSet<Uuid> = mounted.iter().map(|mounted| mounted.uuid).collect();
        let is_wanted = |uuid: &Uuid| !self.all_devices || on_devices.contains_key(uuid);
        let mut filesystems: Vec<Box<dyn Overview>> = Vec::new();
        for Mounted { uuid, filesystem } in mounted {
            if is_wanted(&uuid) {
                filesystems.push(Box::new(filesystem));
            }
        }
        let mut failures = 0;
        for (uuid, devices) in on_devices {
            if uuids.contains(&uuid) {
                continue;
            }
            match devices.and_then(|paths| open_found(uuid, &paths)) {
                Ok(Some(filesystem)) => filesystems.push(Box::new(filesystem)),
                Ok(None) => {}
                Err(error) => {
                    eprintln!("ERROR: {}", message(&error.into()));
                    failures += 1;
                }
            }
        }
        Ok((filesystems, failures))
    }

    fn write(&self, out: &mut impl Write, filesystem: &dyn Overview) -> anyhow::Result<()> {
        let LongUnits(units) = &self.units;
        let label = filesystem.label()?;
        let label = if label.is_empty() { "none".into() } else { format!("'{}'", label.display()) };
        let devices = filesystem.devices()?;
        writeln!(out, "Label: {label}  uuid: {}", filesystem.uuid()?)?;
        let used = units.show(filesystem.used_bytes()?);
        writeln!(out, "\tTotal devices {} FS bytes used {used}", devices.len())?;
        for device in &devices {
            let Some(name) = &device.name else {
                if filesystem.is_mounted() {
                    writeln!(out, "\tdevid {:>4} size 0 used 0 path  MISSING", device.id)?;
                }
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
        if !filesystem.is_mounted() && devices.iter().any(|device| device.name.is_none()) {
            writeln!(out, "\t*** Some devices missing")?;
        }
        writeln!(out)?;
        Ok(())
    }
}

/// Opens the file system that was found on these devices; none if it is there no more.
fn open_found(uuid: Uuid, devices: &[PathBuf]) -> larder::Result<Option<Filesystem>> {
    match OpenOptions::new().degraded(true).open(devices) {
        Err(_) if !is_still_on(uuid, devices) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Whether `operand` is a path, or names an image in another way, and is no bare uuid or label.
fn names_place(operand: &Path) -> bool {
    let text = operand.as_os_str();
    operand.symlink_metadata().is_ok() || names_image(text) || is_url(text) || is_name(text)
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
