//! Takes a read-only snapshot of the default subvolume: `snapshot PATH IMAGE...`

use anyhow::Context;
use larder::SnapshotKind;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().context("usage: snapshot PATH IMAGE...")?;
    let fs = larder::OpenOptions::new().write(true).open(arguments)?;
    // It is durable when this returns.
    fs.default_subvolume()?.snapshot(&path, SnapshotKind::ReadOnly)?;
    Ok(())
}
