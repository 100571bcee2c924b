//! The result, in the form of mkfs.btrfs.

use std::fmt;

use larder_format::{ChecksumType, Profile, Uuid};

use crate::Features;

/// The result. Its `Display` is the output of mkfs.btrfs.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Label; may be empty.
    pub label: String,
    /// Id of the file system.
    pub uuid: Uuid,
    /// Bytes of a tree block.
    pub node_size_bytes: u32,
    /// Bytes of a sector.
    pub sector_size_bytes: u32,
    /// Sum of the devices' sizes.
    pub total_bytes: u64,
    /// Bytes that extents use.
    pub used_bytes: u64,
    /// The block groups by type.
    pub block_groups: Vec<GroupSummary>,
    /// Features that are on.
    pub features: Features,
    /// Checksum algorithm.
    pub checksum: ChecksumType,
    /// The devices in the order of their ids.
    pub devices: Vec<DeviceSummary>,
}

/// All block groups of a type.
#[derive(Clone, Debug)]
pub struct GroupSummary {
    /// `Data`, `Metadata`, `System` or `Data+Metadata`.
    pub name: &'static str,
    /// The profile.
    pub profile: Profile,
    /// Sum of their lengths in logical bytes.
    pub len_bytes: u64,
}

/// A device of the file system.
#[derive(Clone, Debug)]
pub struct DeviceSummary {
    /// Its id.
    pub devid: u64,
    /// Bytes that the file system uses of it.
    pub len_bytes: u64,
    /// Its path.
    pub name: String,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = if self.label.is_empty() { "(null)" } else { &self.label };
        writeln!(f, "{:<20}{label}", "Label:")?;
        writeln!(f, "{:<20}{}", "UUID:", self.uuid)?;
        writeln!(f, "{:<20}{}", "Node size:", self.node_size_bytes)?;
        writeln!(f, "{:<20}{}", "Sector size:", self.sector_size_bytes)?;
        writeln!(f, "{:<20}{}", "Filesystem size:", Size(self.total_bytes))?;
        writeln!(f, "Block group profiles:")?;
        for group in &self.block_groups {
            let name = format!("{}:", group.name);
            let profile = match group.profile {
                Profile::Single => group.profile.name().to_owned(),
                profile => profile.name().to_uppercase(),
            };
            let size = Size(group.len_bytes).to_string();
            writeln!(f, "  {name:<18}{profile:<10}{size:>15}")?;
        }
        writeln!(f, "{:<20}{}", "Features:", self.features.names())?;
        writeln!(f, "{:<20}{}", "Checksum:", self.checksum)?;
        writeln!(f, "{:<20}{}", "Number of devices:", self.devices.len())?;
        writeln!(f, "Devices:")?;
        writeln!(f, "   ID        SIZE  PATH")?;
        for device in &self.devices {
            let size = Size(device.len_bytes).to_string();
            writeln!(f, "{:>5}{size:>12}  {}", device.devid, device.name)?;
        }
        Ok(())
    }
}

/// A number of bytes with a unit and two decimals.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let unit = self.0.checked_ilog2().unwrap_or(0) as usize / 10;
        let scaled = self.0 as f64 / (1u64 << (10 * unit)) as f64;
        write!(f, "{scaled:.2}{}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let shown = |bytes| Size(bytes).to_string();
        assert_eq!(shown(0), "0.00B");
        assert_eq!(shown(8 << 20), "8.00MiB");
        assert_eq!(shown(53_673_984), "51.19MiB");
        assert_eq!(shown(u64::MAX), "16.00EiB");
    }
}
