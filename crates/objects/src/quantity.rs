//! Sizes and times as a user writes them.

use std::fmt;
use std::num::{IntErrorKind, ParseIntError};

pub(crate) const MINUTE: u64 = 60;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

/// The units of times, in seconds.
const UNITS: [(&str, u64); 5] = [("w", 7 * DAY), ("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", 1)];

/// A time as [`parse_seconds`] reads it.
pub(crate) struct Seconds(pub(crate) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(seconds) = *self;
        let fits = |(_, unit): &&(&str, u64)| seconds % unit == 0 && seconds >= *unit;
        let (name, unit) = UNITS[1..].iter().find(fits).unwrap_or(&("s", 1));
        write!(f, "{}{name}", seconds / unit)
    }
}

/// Reads a number of weeks, days, hours, minutes or seconds: `1h`.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    let malformed = || format!("'{text}' is not a time such as 90s, 15m, 1h, 30d or 2w");
    let (name, unit) =
        UNITS.iter().find(|(name, _)| text.ends_with(name)).copied().unwrap_or(("", 1));
    let number: u64 = text[..text.len() - name.len()].parse().map_err(|_| malformed())?;
    number.checked_mul(unit).ok_or_else(malformed)
}

/// Reads a size: a number of bytes, or of their powers of 1024 with k, m, g, t, p or e after it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let no_size = || format!("'{text}' is not a size: 4096, 512k or 8G would be");
    let unit_at = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let unit = unit.to_ascii_lowercase();
    let power = match unit.as_str() {
        "" | "b" => 0,
        _ => {
            let letter = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
            let powers = ["k", "m", "g", "t", "p", "e"];
            1 + powers.iter().position(|power| *power == letter).ok_or_else(no_size)?
        }
    };
    let too_much = || format!("{text} is more than any device holds");
    let number: u64 = digits.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => too_much(),
        _ => no_size(),
    })?;
    number.checked_mul(1024_u64.pow(power as u32)).ok_or_else(too_much)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("4096b"), Ok(4096));
        assert_eq!(parse_size("16k"), Ok(16384));
        assert_eq!(parse_size("8Gb"), Ok(8 << 30));
        assert_eq!(parse_size("8GiB"), Ok(8 << 30));
        for wrong in ["", "k", "16x", "16kk", "16ib", "16bb", "-1", "0x10", "1.5G", "99999999e"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(parse_seconds("90"), Ok(90));
        assert_eq!(parse_seconds("15m"), Ok(900));
        assert_eq!(parse_seconds("2w"), Ok(14 * DAY));
        for wrong in ["", "m", "1y", "-1s", "1.5h", "99999999999999999w"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
