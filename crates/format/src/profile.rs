//! Profiles: how a chunk's bytes are distributed over devices.

use std::fmt;

use crate::block_group::BlockGroupFlags;

/// The distribution of a chunk's bytes over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies on one device.
    Dup,
    /// One copy, striped.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Three copies on three devices.
    Raid1c3,
    /// Four copies on four devices.
    Raid1c4,
    /// Two copies, striped over pairs.
    Raid10,
    /// One copy and one parity, striped.
    Raid5,
    /// One copy and two parities, striped.
    Raid6,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Single,
        Self::Dup,
        Self::Raid0,
        Self::Raid1,
        Self::Raid1c3,
        Self::Raid1c4,
        Self::Raid10,
        Self::Raid5,
        Self::Raid6,
    ];

    /// The profile bit.
    pub const fn flags(self) -> BlockGroupFlags {
        match self {
            Self::Single => BlockGroupFlags::empty(),
            Self::Dup => BlockGroupFlags::DUP,
            Self::Raid0 => BlockGroupFlags::RAID0,
            Self::Raid1 => BlockGroupFlags::RAID1,
            Self::Raid1c3 => BlockGroupFlags::RAID1C3,
            Self::Raid1c4 => BlockGroupFlags::RAID1C4,
            Self::Raid10 => BlockGroupFlags::RAID10,
            Self::Raid5 => BlockGroupFlags::RAID5,
            Self::Raid6 => BlockGroupFlags::RAID6,
        }
    }

    /// The name that btrfs-progs uses, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Dup => "dup",
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid1c3 => "raid1c3",
            Self::Raid1c4 => "raid1c4",
            Self::Raid10 => "raid10",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
        }
    }

    /// The shape of its chunks.
    pub const fn shape(self) -> Shape {
        Shape::of(self)
    }

    /// Whole copies of every byte.
    pub const fn copies(self) -> u64 {
        self.shape().copies as u64
    }

    /// Parity stripes in each full stripe.
    pub const fn parities(self) -> u64 {
        self.shape().parities as u64
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the chunks of a profile are made. All arithmetic of profiles follows from these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Stripes on each device.
    pub stripes_per_device: usize,
    /// The least number of devices.
    pub min_devices: usize,
    /// The most devices.
    pub max_devices: usize,
    /// The number of devices is a multiple of this: for RAID10, whose stripes come in pairs, 2. The
    /// `sub_stripes` of a chunk item.
    pub device_step: usize,
    /// Whole copies of every byte.
    pub copies: usize,
    /// Parity stripes in each full stripe.
    pub parities: usize,
    /// Whether data goes to one device after the other in pieces of 64 KiB.
    pub is_striped: bool,
}

impl Shape {
    /// One copy on one device.
    const SINGLE: Self = Self {
        stripes_per_device: 1,
        min_devices: 1,
        max_devices: 1,
        device_step: 1,
        copies: 1,
        parities: 0,
        is_striped: false,
    };
    /// One copy, striped.
    const STRIPED: Self = Self { max_devices: usize::MAX, is_striped: true, ..Self::SINGLE };
    /// With more data columns, Q could not tell some pairs of them apart.
    const MAX_RAID6_DEVICES: usize = 255 + 2;

    const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Single => Self::SINGLE,
            Profile::Dup => Self { stripes_per_device: 2, copies: 2, ..Self::SINGLE },
            Profile::Raid0 => Self::STRIPED,
            Profile::Raid1 => Self::mirrors(2),
            Profile::Raid1c3 => Self::mirrors(3),
            Profile::Raid1c4 => Self::mirrors(4),
            Profile::Raid10 => Self { min_devices: 2, device_step: 2, copies: 2, ..Self::STRIPED },
            Profile::Raid5 => Self { min_devices: 2, parities: 1, ..Self::STRIPED },
            Profile::Raid6 => Self {
                min_devices: 3,
                max_devices: Self::MAX_RAID6_DEVICES,
                parities: 2,
                ..Self::STRIPED
            },
        }
    }

    const fn mirrors(copies: usize) -> Self {
        Self { min_devices: copies, max_devices: copies, copies, ..Self::SINGLE }
    }

    /// The least number of stripes.
    pub const fn min_stripes(self) -> usize {
        self.min_devices * self.stripes_per_device
    }

    /// Whether a chunk may have so many stripes.
    pub const fn allows(self, stripes: usize) -> bool {
        let devices = stripes / self.stripes_per_device;
        stripes.is_multiple_of(self.stripes_per_device)
            && devices > 0
            && self.devices_of(devices) == devices
    }

    /// How many of `available` devices a chunk takes: the most that it can; 0 if they are too few.
    pub const fn devices_of(self, available: usize) -> usize {
        let most = if available < self.max_devices { available } else { self.max_devices };
        let devices = most - most % self.device_step;
        if devices < self.min_devices { 0 } else { devices }
    }

    /// Stripes with different data: all except mirrors and parity.
    pub const fn data_stripes(self, stripes: usize) -> usize {
        (stripes - self.parities) / self.copies
    }

    /// The number of devices that may be lost without losing data.
    pub const fn tolerated_losses(self) -> usize {
        if self.stripes_per_device > 1 { 0 } else { self.copies - 1 + self.parities }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of btrfs, by profile: least stripes, whether 2, 3, 4 and 5 are allowed, the data
    /// stripes of the largest of these, and the devices that may be lost.
    #[test]
    fn shapes_are_those_of_the_format() {
        let shapes = Profile::ALL.map(|profile| {
            let shape = profile.shape();
            let allowed: Vec<usize> = (0..=5).filter(|&stripes| shape.allows(stripes)).collect();
            let data = shape.data_stripes(*allowed.last().unwrap());
            (profile, shape.min_stripes(), allowed, data, shape.tolerated_losses())
        });
        let wanted = [
            (Profile::Single, 1, vec![1], 1, 0),
            (Profile::Dup, 2, vec![2], 1, 0),
            (Profile::Raid0, 1, vec![1, 2, 3, 4, 5], 5, 0),
            (Profile::Raid1, 2, vec![2], 1, 1),
            (Profile::Raid1c3, 3, vec![3], 1, 2),
            (Profile::Raid1c4, 4, vec![4], 1, 3),
            (Profile::Raid10, 2, vec![2, 4], 2, 1),
            (Profile::Raid5, 2, vec![2, 3, 4, 5], 4, 1),
            (Profile::Raid6, 3, vec![3, 4, 5], 3, 2),
        ];
        assert_eq!(shapes, wanted);
    }

    #[test]
    fn a_chunk_takes_as_many_devices_as_it_can() {
        let taken = |profile: Profile| [0, 1, 2, 3, 7, 300].map(|n| profile.shape().devices_of(n));
        assert_eq!(taken(Profile::Dup), [0, 1, 1, 1, 1, 1]);
        assert_eq!(taken(Profile::Raid1), [0, 0, 2, 2, 2, 2]);
        assert_eq!(taken(Profile::Raid10), [0, 0, 2, 2, 6, 300]);
        assert_eq!(taken(Profile::Raid5), [0, 0, 2, 3, 7, 300]);
        assert_eq!(taken(Profile::Raid6), [0, 0, 0, 3, 7, 257]);
    }
}
