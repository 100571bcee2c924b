//! Writes a snapshot, or what changed since another, as a stream to standard output:
//! `send IMAGE SNAPSHOT [PARENT]`

use std::io::{self, Write};

use anyhow::Context;
use larder::{SendOptions, SendSnapshot};

fn main() -> anyhow::Result<()> {
    let usage = "usage: send IMAGE SNAPSHOT [PARENT]";
    let mut arguments = std::env::args_os().skip(1);
    let fs = larder::OpenOptions::new().open([arguments.next().context(usage)?])?;
    let snapshot = fs.subvolume(arguments.next().context(usage)?)?;
    let parent = arguments.next().map(|path| fs.subvolume(path)).transpose()?;
    let mut output = io::BufWriter::with_capacity(1 << 20, io::stdout());
    snapshot.send(&SendOptions { parent, ..SendOptions::default() }, &mut output)?;
    output.flush()?;
    Ok(())
}
