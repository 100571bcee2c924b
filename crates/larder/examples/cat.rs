//! Writes a file of an image to standard output: `cat PATH IMAGE...`

use std::io;

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().context("usage: cat PATH IMAGE...")?;
    let fs = larder::OpenOptions::new().open(arguments)?;
    let file = fs.default_subvolume()?.open_file(&path)?;
    io::copy(&mut io::BufReader::with_capacity(1 << 20, file.cursor()), &mut io::stdout())?;
    Ok(())
}
