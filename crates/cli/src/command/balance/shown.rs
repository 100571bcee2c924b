//! Balances as text and as JSON.

use std::io::{self, Write};

use larder::{BalanceItem, DiskBalanceArgs, balance_filter as filter, balance_flags};
use serde_json::{Value, json};

/// Writes what a balance moves, as btrfs-progs does with `-v`.
pub fn write_filters(out: &mut impl Write, item: &BalanceItem, state: u64) -> io::Result<()> {
    let flags = item.flags.get();
    let force = if flags & balance_flags::FORCE != 0 { "on" } else { "off" };
    writeln!(out, "Dumping filters: flags 0x{flags:x}, state 0x{state:x}, force is {force}")?;
    for (bit, name, args) in kinds(item) {
        if flags & bit != 0 {
            writeln!(out, "  {name} (flags 0x{:x}): {}", args.flags.get(), words(args).join(", "))?;
        }
    }
    Ok(())
}

/// What a balance moves.
pub fn fields(item: &BalanceItem) -> Value {
    let is_moved = |bit: u64| item.flags.get() & bit != 0;
    let moved = kinds(item).into_iter().filter(|(bit, ..)| is_moved(*bit));
    moved.map(|(_, name, args)| (name.to_lowercase(), json!(words(args)))).collect()
}

fn kinds(item: &BalanceItem) -> [(u64, &'static str, &DiskBalanceArgs); 3] {
    [
        (balance_flags::DATA, "DATA", &item.data),
        (balance_flags::METADATA, "METADATA", &item.meta),
        (balance_flags::SYSTEM, "SYSTEM", &item.sys),
    ]
}

fn words(args: &DiskBalanceArgs) -> Vec<String> {
    let range = |(from, to): (u32, u32)| {
        let from = if from > 0 { from.to_string() } else { String::new() };
        let to = if to < u32::MAX { to.to_string() } else { String::new() };
        format!("{from}..{to}")
    };
    let mut words = if args.has(filter::CONVERT) {
        let soft = if args.has(filter::SOFT) { "on" } else { "off" };
        vec![format!("converting, target={}, soft is {soft}", args.target)]
    } else {
        vec!["balancing".to_owned()]
    };
    let stripes = (args.stripes_min.get(), args.stripes_max.get());
    let all = [
        (filter::PROFILES, format!("profiles={}", args.profiles)),
        (filter::USAGE, format!("usage={}", args.usage)),
        (filter::USAGE_RANGE, format!("usage={}", range(DiskBalanceArgs::bounds(args.usage)))),
        (filter::DEVID, format!("devid={}", args.devid)),
        (filter::DRANGE, format!("drange={}..{}", args.pstart, args.pend)),
        (filter::VRANGE, format!("vrange={}..{}", args.vstart, args.vend)),
        (filter::LIMIT, format!("limit={}", args.limit)),
        (filter::LIMIT_RANGE, format!("limit={}", range(DiskBalanceArgs::bounds(args.limit)))),
        (filter::STRIPES_RANGE, format!("stripes={}", range(stripes))),
    ];
    words.extend(all.into_iter().filter(|(bit, _)| args.has(*bit)).map(|(_, word)| word));
    words
}
