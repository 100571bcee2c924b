//! Lists all inodes of an image's top level in the order of the tree, with two threads and without
//! looking at directories: `scan [--count] IMAGE...`
//!
//! With `--count` it prints only how many names there are, how long that took, and counters.

use std::io::{self, Write};
use std::time::Instant;

use larder::{Scan, Subvolume};

const THREADS: usize = 2;
const BUFFER_BYTES: usize = 1 << 16;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let only_count = arguments.next_if(|argument| argument == "--count").is_some();
    let start = Instant::now();
    let fs = larder::OpenOptions::new().open(arguments)?;
    let top = fs.subvolume("/")?;
    let parts = top.scan_parts(THREADS)?;
    let count: u64 = std::thread::scope(|scope| {
        let list = |part| scope.spawn(|| list(&top, part, only_count));
        let threads: Vec<_> = parts.into_iter().map(list).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .sum::<Result<_, _>>()
    })?;
    if only_count {
        println!("{count} names in {:.3} s", start.elapsed().as_secs_f64());
        println!("{:#?}", fs.stats());
    }
    Ok(())
}

/// Lists a part, many lines at once so that those of two threads do not mix.
fn list(top: &Subvolume, part: Scan, only_count: bool) -> anyhow::Result<u64> {
    let mut lines = Vec::with_capacity(2 * BUFFER_BYTES);
    let mut paths = top.paths();
    let mut count = 0;
    let flush = |lines: &mut Vec<u8>| {
        if !only_count {
            io::stdout().write_all(lines)?;
        }
        lines.clear();
        io::Result::Ok(())
    };
    for inode in part {
        let inode = inode?;
        for link in &inode.links {
            let (mode, size_bytes) = (inode.metadata.mode, inode.metadata.size_bytes);
            writeln!(lines, "{mode:6o} {size_bytes:12} {}", paths.of(link)?.display())?;
            count += 1;
        }
        if lines.len() >= BUFFER_BYTES {
            flush(&mut lines)?;
        }
    }
    flush(&mut lines)?;
    Ok(count)
}
