//! The filters of a balance as text, as btrfs-progs reads them.

use std::str::FromStr;

use zerocopy::FromZeros;

use super::{
    BALANCE_SINGLE, BalanceItem, DiskBalanceArgs, balance_filter as filter, balance_flags,
};
use crate::Profile;

/// A text that is no filter of a balance, or one that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(String);

type Result<T> = std::result::Result<T, FilterError>;

fn wrong<T>(problem: impl Into<String>) -> Result<T> {
    Err(FilterError(problem.into()))
}

fn ensure(holds: bool, problem: &str) -> Result<()> {
    if holds { Ok(()) } else { wrong(problem) }
}

impl BalanceItem {
    /// A balance of the kinds of block groups for which there are filters, or of all kinds if there
    /// are none at all: `usage=50,limit=2`. The chunk tree goes with metadata unless it has filters
    /// of its own. With `force`, metadata may become less safe.
    ///
    /// # Errors
    /// If a text is not understood.
    pub fn from_filters(
        data: Option<&str>,
        metadata: Option<&str>,
        system: Option<&str>,
        force: bool,
    ) -> Result<Self> {
        let mut item = Self::nothing();
        let mut flags = if force { balance_flags::FORCE } else { 0 };
        let kinds = [
            (data, balance_flags::DATA, &mut item.data),
            (metadata, balance_flags::METADATA, &mut item.meta),
            (system.or(metadata), balance_flags::SYSTEM, &mut item.sys),
        ];
        let is_everything = data.is_none() && metadata.is_none() && system.is_none();
        for (text, flag, args) in kinds {
            if let Some(text) = text {
                *args = text.parse()?;
            }
            flags |= if is_everything || text.is_some() { flag } else { 0 };
        }
        item.flags = flags.into();
        Ok(item)
    }
}

impl FromStr for DiskBalanceArgs {
    type Err = FilterError;

    /// Reads the filters of one kind of block group, separated by commas.
    fn from_str(text: &str) -> Result<Self> {
        let mut args = Self::new_zeroed();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let added = match name {
                "soft" => filter::SOFT,
                "profiles" | "usage" | "devid" | "drange" | "vrange" | "convert" | "limit"
                | "stripes" => {
                    ensure(!value.is_empty(), &format!("the {name} filter requires an argument"))?;
                    set(&mut args, name, value)
                        .map_err(|FilterError(problem)| FilterError(format!("{part}: {problem}")))?
                }
                _ => return wrong(format!("unrecognized balance option: {part}")),
            };
            args.flags = (args.flags.get() | added).into();
        }
        ensure(
            !args.has(filter::DRANGE) || args.has(filter::DEVID),
            "drange filter must be used with devid filter",
        )?;
        ensure(
            !args.has(filter::SOFT) || args.has(filter::CONVERT),
            "'soft' option can be used only if changing profiles",
        )?;
        Ok(args)
    }
}

fn set(args: &mut DiskBalanceArgs, name: &str, value: &str) -> Result<u64> {
    Ok(match name {
        "profiles" => {
            let bits = value.split('|').map(bit_of).collect::<Result<Vec<_>>>()?;
            args.profiles = bits.into_iter().fold(0, |all, bit| all | bit).into();
            filter::PROFILES
        }
        "usage" => {
            if let Ok(percent) = value.parse::<u64>() {
                ensure(percent <= 100, "it is a percentage")?;
                args.usage = percent.into();
                filter::USAGE
            } else {
                let (least, most) = range(value, u64::from(u32::MAX))?;
                ensure(most <= 100, "these are percentages")?;
                args.usage = halves(least, most).into();
                filter::USAGE_RANGE
            }
        }
        "devid" => {
            let devid = number(value)?;
            ensure(devid > 0, "ids of devices begin with 1")?;
            args.devid = devid.into();
            filter::DEVID
        }
        "drange" => {
            let (start, end) = range(value, u64::MAX)?;
            (args.pstart, args.pend) = (start.into(), end.into());
            filter::DRANGE
        }
        "vrange" => {
            let (start, end) = range(value, u64::MAX)?;
            (args.vstart, args.vend) = (start.into(), end.into());
            filter::VRANGE
        }
        "convert" => {
            args.target = bit_of(value)?.into();
            filter::CONVERT
        }
        "limit" => {
            if let Ok(most) = value.parse::<u64>() {
                args.limit = most.into();
                filter::LIMIT
            } else {
                let (least, most) = range(value, u64::from(u32::MAX))?;
                args.limit = halves(least, most).into();
                filter::LIMIT_RANGE
            }
        }
        _ => {
            let (least, most) = range(value, u64::from(u32::MAX))?;
            (args.stripes_min, args.stripes_max) = ((least as u32).into(), (most as u32).into());
            filter::STRIPES_RANGE
        }
    })
}

fn number(text: &str) -> Result<u64> {
    text.parse().or_else(|_| wrong(format!("'{text}' is no number")))
}

fn halves(low: u64, high: u64) -> u64 {
    low | high << 32
}

/// Reads `FROM..TO`, of which one may be missing.
fn range(text: &str, greatest: u64) -> Result<(u64, u64)> {
    let Some((from, to)) = text.split_once("..") else {
        return wrong("it is no range like 2..4");
    };
    ensure(!from.is_empty() || !to.is_empty(), "one end of the range is needed")?;
    let bound = |text: &str, missing: u64| if text.is_empty() { Ok(missing) } else { number(text) };
    let (from, to) = (bound(from, 0)?, bound(to, greatest)?);
    ensure(from <= to && to <= greatest, &format!("the range {from}..{to} doesn't make sense"))?;
    Ok((from, to))
}

fn bit_of(name: &str) -> Result<u64> {
    let is_it = |profile: &Profile| profile.name().eq_ignore_ascii_case(name);
    match Profile::ALL.into_iter().find(is_it) {
        Some(Profile::Single) => Ok(BALANCE_SINGLE),
        Some(profile) => Ok(profile.flags().bits()),
        None => wrong(format!("unknown profile: {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DiskBalanceArgs> {
        text.parse()
    }

    #[test]
    fn filters_are_read_as_btrfs_progs_reads_them() {
        let args = parse("usage=50,profiles=raid1|single,limit=2..4,devid=3,drange=5..").unwrap();
        let wanted =
            filter::USAGE | filter::PROFILES | filter::LIMIT_RANGE | filter::DEVID | filter::DRANGE;
        assert_eq!(args.flags.get(), wanted);
        assert_eq!((args.usage.get(), args.limit.get()), (50, halves(2, 4)));
        assert_eq!(args.profiles.get(), BALANCE_SINGLE | Profile::Raid1.flags().bits());
        assert_eq!((args.pstart.get(), args.pend.get()), (5, u64::MAX));
        let args = parse("usage=10..90,convert=dup,soft,stripes=..2,vrange=1..9").unwrap();
        assert_eq!(args.usage.get(), halves(10, 90));
        assert_eq!((args.stripes_min.get(), args.stripes_max.get()), (0, 2));
        assert_eq!(args.target.get(), Profile::Dup.flags().bits());
        assert_eq!(parse("").unwrap().flags.get(), 0);
        for bad in [
            "usage=101",
            "usage=",
            "usage=x",
            "soft",
            "drange=1..2",
            "devid=0",
            "limit=4..2",
            "stripes=2",
            "convert=raid9",
            "vrange=..",
            "color=red",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
    #[test]
    fn the_chunk_tree_goes_with_metadata() {
        let flags = |data, metadata, system, force| {
            BalanceItem::from_filters(data, metadata, system, force).unwrap().flags.get()
        };
        let all = balance_flags::DATA | balance_flags::METADATA | balance_flags::SYSTEM;
        assert_eq!(flags(None, None, None, false), all);
        assert_eq!(flags(None, None, None, true), all | balance_flags::FORCE);
        assert_eq!(flags(Some(""), None, None, false), balance_flags::DATA);
        let of_trees = balance_flags::METADATA | balance_flags::SYSTEM;
        assert_eq!(flags(None, Some("usage=5"), None, false), of_trees);
        let item = BalanceItem::from_filters(None, Some("usage=5"), Some("limit=1"), false);
        let item = item.unwrap();
        assert_eq!((item.meta.usage.get(), item.sys.usage.get(), item.sys.limit.get()), (5, 0, 1));
    }
}
