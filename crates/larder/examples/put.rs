//! Writes standard input to a file of an image: `put PATH IMAGE...`

use std::io;

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().context("usage: put PATH IMAGE...")?;
    let fs = larder::OpenOptions::new().write(true).open(arguments)?;
    let root = fs.default_subvolume()?;
    root.write(&path, b"")?;
    let cursor = root.open_file(&path)?.cursor();
    io::copy(&mut io::stdin(), &mut io::BufWriter::with_capacity(1 << 20, cursor))?;
    // Until then, a crash loses it.
    fs.sync()?;
    Ok(())
}
