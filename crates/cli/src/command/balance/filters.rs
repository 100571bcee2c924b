//! The filters after `-d`, `-m` and `-s`.

use anyhow::{Context, anyhow, bail, ensure};
use larder::{BALANCE_SINGLE, BalanceItem, DiskBalanceArgs, Profile, balance_filter as filter};

/// Reads the filters of one kind of block group, separated by commas.
pub fn parse(text: &str) -> anyhow::Result<DiskBalanceArgs> {
    let mut args = BalanceItem::nothing().data;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let added = match name {
            "soft" => filter::SOFT,
            "profiles" | "usage" | "devid" | "drange" | "vrange" | "convert" | "limit"
            | "stripes" => {
                ensure!(!value.is_empty(), "the {name} filter requires an argument");
                set(&mut args, name, value).with_context(|| part.to_owned())?
            }
            _ => bail!("unrecognized balance option: {part}"),
        };
        args.flags = (args.flags.get() | added).into();
    }
    ensure!(
        !args.has(filter::DRANGE) || args.has(filter::DEVID),
        "drange filter must be used with devid filter"
    );
    ensure!(
        !args.has(filter::SOFT) || args.has(filter::CONVERT),
        "'soft' option can be used only if changing profiles"
    );
    Ok(args)
}

fn set(args: &mut DiskBalanceArgs, name: &str, value: &str) -> anyhow::Result<u64> {
    Ok(match name {
        "profiles" => {
            let bits = value.split('|').map(bit_of).collect::<anyhow::Result<Vec<_>>>()?;
            args.profiles = bits.into_iter().fold(0, |all, bit| all | bit).into();
            filter::PROFILES
        }
        "usage" => match value.parse::<u64>() {
            Ok(percent) => {
                ensure!(percent <= 100, "it is a percentage");
                args.usage = percent.into();
                filter::USAGE
            }
            Err(_) => {
                let (least, most) = range(value, u64::from(u32::MAX))?;
                ensure!(most <= 100, "these are percentages");
                args.usage = halves(least, most).into();
                filter::USAGE_RANGE
            }
        },
        "devid" => {
            let devid = value.parse::<u64>()?;
            ensure!(devid > 0, "ids of devices begin with 1");
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
        "limit" => match value.parse::<u64>() {
            Ok(most) => {
                args.limit = most.into();
                filter::LIMIT
            }
            Err(_) => {
                let (least, most) = range(value, u64::from(u32::MAX))?;
                args.limit = halves(least, most).into();
                filter::LIMIT_RANGE
            }
        },
        _ => {
            let (least, most) = range(value, u64::from(u32::MAX))?;
            (args.stripes_min, args.stripes_max) = ((least as u32).into(), (most as u32).into());
            filter::STRIPES_RANGE
        }
    })
}

fn halves(low: u64, high: u64) -> u64 {
    low | high << 32
}

/// Reads `FROM..TO`, of which one may be missing.
fn range(text: &str, greatest: u64) -> anyhow::Result<(u64, u64)> {
    let (from, to) = text.split_once("..").ok_or_else(|| anyhow!("it is no range like 2..4"))?;
    ensure!(!from.is_empty() || !to.is_empty(), "one end of the range is needed");
    let bound = |text: &str, missing: u64| if text.is_empty() { Ok(missing) } else { text.parse() };
    let (from, to) = (bound(from, 0)?, bound(to, greatest)?);
    ensure!(from <= to && to <= greatest, "the range {from}..{to} doesn't make sense");
    Ok((from, to))
}

fn bit_of(name: &str) -> anyhow::Result<u64> {
    let is_it = |profile: &Profile| profile.name().eq_ignore_ascii_case(name);
    match Profile::ALL.into_iter().find(is_it) {
        Some(Profile::Single) => Ok(BALANCE_SINGLE),
        Some(profile) => Ok(profile.flags().bits()),
        None => bail!("unknown profile: {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
