//! Ways in which data is stored.

use larder_format::compression::Algorithm;

/// How data is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAs {
    /// As it is.
    Plain,
    /// Compressed.
    Compressed(Algorithm),
    /// Reserved, and not written.
    Preallocated,
}

impl StoredAs {
    pub(crate) fn of_item(compression: u8, is_preallocated: bool) -> Self {
        match Algorithm::from_disk(compression) {
            _ if is_preallocated => Self::Preallocated,
            Some(algorithm) => Self::Compressed(algorithm),
            None => Self::Plain,
        }
    }

    /// A number below [`Self::COUNT`]; preallocated is the greatest.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Compressed(algorithm) => algorithm.to_disk(),
            Self::Preallocated => 4,
        }
    }

    pub(crate) fn of_number(number: u8) -> Self {
        match number {
            4 => Self::Preallocated,
            number => Self::of_item(number, false),
        }
    }

    pub(crate) const COUNT: usize = 5;
}
