//! Compression in the notation of options: `zlib`, `zlib:9`, `lzo`, `zstd:-5`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::Algorithm;

/// An algorithm with one of its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compression {
    algorithm: Algorithm,
    level: i32,
}

/// Why a text or a number does not name a [`Compression`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionSpecError {
    /// The part before the colon is no algorithm's name.
    #[error("unknown compression algorithm '{0}'; known are zlib, lzo and zstd")]
    UnknownAlgorithm(String),
    /// The part after the colon is no number.
    #[error("'{0}' is no compression level")]
    NotANumber(String),
    /// The algorithm has no such level.
    #[error("{algorithm} has no level {level}; its levels are {} to {}", .levels.start(), .levels.end())]
    LevelOutOfRange {
        /// The algorithm asked for.
        algorithm: Algorithm,
        /// The level asked for.
        level: i32,
        /// The levels it has.
        levels: RangeInclusive<i32>,
    },
    /// The algorithm has no levels at all.
    #[error("{0} has no levels")]
    NoLevels(Algorithm),
}

impl Compression {
    /// The algorithm at a level: zlib has 1 to 9, zstd -15 to 15, LZO none. 0 and `None` both stand
    /// for the default, as in the kernel's mount options; the kernel clamps other levels, while
    /// they are an error here.
    pub fn new(algorithm: Algorithm, level: Option<i32>) -> Result<Self, CompressionSpecError> {
        let (levels, default) = match algorithm {
            Algorithm::Zlib => (1..=9, 3),
            Algorithm::Zstd => (-15..=15, 3),
            Algorithm::Lzo if level.is_some() => {
                return Err(CompressionSpecError::NoLevels(algorithm));
            }
            Algorithm::Lzo => (0..=0, 0),
        };
        match level {
            None | Some(0) => Ok(Self { algorithm, level: default }),
            Some(level) if levels.contains(&level) => Ok(Self { algorithm, level }),
            Some(level) => Err(CompressionSpecError::LevelOutOfRange { algorithm, level, levels }),
        }
    }

    /// The algorithm.
    pub fn algorithm(self) -> Algorithm {
        self.algorithm
    }

    /// The level; `None` for LZO, which has none.
    pub fn level(self) -> Option<i32> {
        (self.algorithm != Algorithm::Lzo).then_some(self.level)
    }
}

/// The algorithm at its default level.
impl From<Algorithm> for Compression {
    fn from(algorithm: Algorithm) -> Self {
        Self::new(algorithm, None).expect("every algorithm has a default level")
    }
}

impl FromStr for Compression {
    type Err = CompressionSpecError;

    /// Reads `NAME` or `NAME:LEVEL`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let algorithm = Algorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| CompressionSpecError::UnknownAlgorithm(name.to_owned()))?;
        let level = level
            .map(|level| {
                level.parse().map_err(|_| CompressionSpecError::NotANumber(level.to_owned()))
            })
            .transpose()?;
        Self::new(algorithm, level)
    }
}

impl fmt::Display for Compression {
    /// Writes the form that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level() {
            Some(level) => write!(f, "{}:{level}", self.algorithm),
            None => write!(f, "{}", self.algorithm),
        }
    }
}
