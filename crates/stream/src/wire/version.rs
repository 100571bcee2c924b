//! Versions of the stream.

/// A version of the stream format. Each has all commands of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Data in commands of less than 64 KiB.
    V1 = 1,
    /// Longer data, data as it is stored compressed, preallocation, file attributes, creation
    /// times.
    V2 = 2,
    /// Verity.
    V3 = 3,
}

impl Version {
    /// The newest.
    pub const NEWEST: Self = Self::V3;

    /// The version of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::V1, Self::V2, Self::V3].into_iter().find(|version| version.number() == number)
    }

    /// Its number in the header.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The most bytes of one command's attributes. Version 1 limits a command to 64 KiB with its
    /// header; later ones have no limit, and 1 MiB is far more than any sender needs.
    pub const fn longest_command_bytes(self) -> usize {
        match self {
            Self::V1 => (64 << 10) - super::COMMAND_HEADER_LEN,
            Self::V2 | Self::V3 => 1 << 20,
        }
    }

    /// The greatest number of a command.
    pub(super) const fn last_command(self) -> u16 {
        match self {
            Self::V1 => 22,
            Self::V2 => 25,
            Self::V3 => 26,
        }
    }

    /// Whether the length of data is not stored: it is the last attribute and takes the rest.
    pub(super) const fn data_takes_the_rest(self) -> bool {
        !matches!(self, Self::V1)
    }
}
