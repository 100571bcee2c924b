//! Makes an image from a directory: `make IMAGE DIRECTORY`

use anyhow::Context;
use larder::mkfs::{MkfsOptions, mkfs};

fn main() -> anyhow::Result<()> {
    let usage = "usage: make IMAGE DIRECTORY";
    let mut arguments = std::env::args_os().skip(1);
    let image = arguments.next().context(usage)?;
    let root_dir = Some(arguments.next().context(usage)?.into());
    let summary =
        mkfs(&[image.into()], &MkfsOptions { root_dir, shrink: true, ..MkfsOptions::default() })?;
    println!("uuid {}", summary.uuid);
    Ok(())
}
