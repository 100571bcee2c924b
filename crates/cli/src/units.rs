//! Sizes in the units that the user asks for, as btrfs-progs writes them.

use clap::Args;

/// Options that choose units; shared by every command that shows sizes.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Units {
    /// Bytes, as plain numbers
    #[arg(short = 'b', long)]
    raw: bool,
    /// The unit that suits each size, base 1024 (default)
    #[arg(long)]
    human_readable: bool,
    /// The unit that suits each size, base 1000
    #[arg(short = 'H')]
    human_decimal: bool,
    /// Base 1024: KiB, MiB, GiB, TiB
    #[arg(long)]
    iec: bool,
    /// Base 1000: kB, MB, GB, TB
    #[arg(long)]
    si: bool,
    /// Sizes in KiB, or kB with --si
    #[arg(short, long, group = "unit")]
    kbytes: bool,
    /// Sizes in MiB, or MB with --si
    #[arg(short, long, group = "unit")]
    mbytes: bool,
    /// Sizes in GiB, or GB with --si
    #[arg(short, long, group = "unit")]
    gbytes: bool,
    /// Sizes in TiB, or TB with --si
    #[arg(short, long, group = "unit")]
    tbytes: bool,
}

/// Reads a size: a number of bytes, or with k, m, g, t, p or e behind it of their powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let no_size = || format!("'{text}' is not a size: 4096, 512k or 8G would be");
    let lower = text.to_ascii_lowercase();
    let trimmed = lower.trim_end_matches('b').trim_end_matches('i');
    let (digits, power) = match trimmed.char_indices().next_back() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => {
            let power = "kmgtpe".find(unit).ok_or_else(no_size)?;
            (&trimmed[..at], power as u32 + 1)
        }
        _ => (trimmed, 0),
    };
    let number: u64 = digits.parse().map_err(|_| no_size())?;
    number.checked_mul(1024_u64.pow(power)).ok_or_else(|| format!("{text} is too much"))
}

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

impl Units {
    /// Whether sizes are plain numbers.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// `bytes` in these units, with two decimals where it is not a plain number.
    pub fn show(&self, bytes: u64) -> String {
        if self.raw {
            return bytes.to_string();
        }
        let (base, names) =
            if self.si || self.human_decimal { (1000.0, DECIMAL) } else { (1024.0, BINARY) };
        let fixed = [self.kbytes, self.mbytes, self.gbytes, self.tbytes];
        let power = match fixed.iter().position(|wanted| *wanted) {
            Some(position) => position + 1,
            None => fitting_power(bytes, base),
        };
        format!("{:.2}{}", bytes as f64 / base.powi(power as i32), names[power])
    }
}

/// The power of `base` in which `bytes` has one to four digits before the point.
fn fitting_power(bytes: u64, base: f64) -> usize {
    let mut rest = bytes as f64;
    let mut power = 0;
    while rest >= base && power + 1 < BINARY.len() {
        rest /= base;
        power += 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("16k"), Ok(16384));
        assert_eq!(parse_size("8GiB"), Ok(8 << 30));
        assert!(parse_size("16x").is_err());
        assert!(parse_size("99999999e").is_err());
    }

    #[test]
    fn sizes_read_as_btrfs_progs_writes_them() {
        let human = Units::default();
        assert_eq!(human.show(0), "0.00B");
        assert_eq!(human.show(196_608), "192.00KiB");
        assert_eq!(human.show(u64::MAX), "16.00EiB");
        assert_eq!(Units { human_decimal: true, ..human }.show(196_608), "196.61kB");
        assert_eq!(Units { gbytes: true, ..human }.show(33_554_432), "0.03GiB");
        assert_eq!(Units { raw: true, ..human }.show(33_554_432), "33554432");
    }
}
