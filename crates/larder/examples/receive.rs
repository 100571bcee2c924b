//! Makes the snapshots of a stream on standard input: `receive IMAGE DIRECTORY`

use std::io;
use std::ops::ControlFlow;

use anyhow::Context;
use larder::{ReceiveEvent, ReceiveOptions, ReceiveSnapshots};

fn main() -> anyhow::Result<()> {
    let usage = "usage: receive IMAGE DIRECTORY";
    let mut arguments = std::env::args_os().skip(1);
    let image = arguments.next().context(usage)?;
    let path = arguments.next().context(usage)?;
    let fs = larder::OpenOptions::new().write(true).open([image])?;
    let directory = fs.default_subvolume()?.open_directory(path)?;
    let input = io::BufReader::with_capacity(1 << 20, io::stdin());
    let mut observe = |event: ReceiveEvent<'_>| {
        if let ReceiveEvent::Begins { name, .. } = event {
            eprintln!("{}", String::from_utf8_lossy(name));
        }
        ControlFlow::Continue(())
    };
    directory.receive(input, &ReceiveOptions::default(), &mut observe)?;
    Ok(())
}
