//! The space of file systems and devices, as users see it.

mod device;
mod shown;

use anyhow::ensure;
use larder::{DeviceInfo, Overview, Profile, Space, SpaceKind};

pub use device::{DeviceSpace, slack, unallocated};
pub use shown::Shown;

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
pub fn profile_name(profile: Option<Profile>) -> String {
    match profile {
        None => "unknown".into(),
        Some(Profile::Single) => "single".into(),
        Some(profile) => profile.name().to_ascii_uppercase(),
    }
}
