//! `larder filesystem`: the file system as a whole.

mod device_space;
mod df;
mod du;
mod label;
mod mkswapfile;
mod show;
mod shown;
mod sync;
mod usage;

use std::fs::File;
use std::io::{Seek, SeekFrom};

use anyhow::ensure;
use clap::Subcommand;
use larder::{DeviceInfo, Overview, Space, SpaceKind};

pub use device_space::DeviceSpace;
pub use shown::Shown;

use super::Outcome;
use crate::global::Global;

/// Look at a whole file system
#[derive(Debug, Subcommand)]
pub enum Filesystem {
    Df(df::Df),
    Du(du::Du),
    Label(label::Label),
    Mkswapfile(mkswapfile::Mkswapfile),
    Show(show::Show),
    Sync(sync::Sync),
    Usage(usage::Usage),
}

impl Filesystem {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Df(command) => command.run(global),
            Self::Du(command) => command.run(global),
            Self::Label(command) => command.run(global),
            Self::Mkswapfile(command) => command.run(global),
            Self::Show(command) => command.run(global),
            Self::Sync(command) => command.run(),
            Self::Usage(command) => command.run(global),
        }
    }
}

/// The order in which kinds of space are shown.
const KINDS: [SpaceKind; 4] =
    [SpaceKind::Data, SpaceKind::DataAndMetadata, SpaceKind::Metadata, SpaceKind::System];

/// The space of each kind, in the order in which they are shown. Fails if it is not known on which
/// devices it lies.
pub fn known_spaces(filesystem: &dyn Overview) -> anyhow::Result<Vec<Space>> {
    let mut spaces = filesystem.space()?;
    let places_known = |space: &Space| space.raw_bytes > 0 || space.total_bytes == 0;
    ensure!(spaces.iter().all(places_known), "only root may know where block groups lie");
    spaces.sort_by_key(|space| KINDS.iter().position(|kind| *kind == space.kind));
    Ok(spaces)
}

/// The devices that the file system can take space from: not those of its seeds.
pub fn own_devices(filesystem: &dyn Overview) -> anyhow::Result<Vec<DeviceInfo>> {
    let mut devices = filesystem.devices()?;
    devices.retain(|device| !device.is_seed);
    Ok(devices)
}

/// Bytes of a device that no block group has.
pub fn unallocated(device: &DeviceInfo) -> u64 {
    device.total_bytes.saturating_sub(device.allocated_bytes)
}

/// Bytes of a device past the end of its part of the file system; none where it cannot be read.
pub fn slack(device: &DeviceInfo) -> u64 {
    let opened = device.name.as_ref().and_then(|name| File::open(name).ok());
    let len_bytes = opened.and_then(|mut device| device.seek(SeekFrom::End(0)).ok());
    len_bytes.unwrap_or(0).saturating_sub(device.total_bytes)
}

/// The name of a device, as btrfs-progs shows it. A missing one has none.
pub fn shown_name(device: &DeviceInfo) -> &str {
    device.name.as_deref().unwrap_or("missing")
}

/// The purpose of block groups, as btrfs-progs names it.
pub fn kind_name(kind: SpaceKind) -> &'static str {
    match kind {
        SpaceKind::Data => "Data",
        SpaceKind::System => "System",
        SpaceKind::Metadata => "Metadata",
        SpaceKind::DataAndMetadata => "Data+Metadata",
    }
}

/// A profile in the mixture of cases that btrfs-progs prints: `single`, `DUP`, `RAID1`, `RAID1C3`.
pub fn profile_name(profile: Option<larder::Profile>) -> String {
    match profile {
        None => "unknown".into(),
        Some(larder::Profile::Single) => "single".into(),
        Some(profile) => profile.name().to_ascii_uppercase(),
    }
}
