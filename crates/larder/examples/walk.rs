//! Lists everything below the top level of an image: `walk IMAGE...`

fn main() -> anyhow::Result<()> {
    let fs = larder::OpenOptions::new().open(std::env::args_os().skip(1))?;
    if fs.needs_log_replay() {
        eprintln!("a crash left log trees, whose changes are not shown");
    }
    for entry in fs.subvolume("/")?.root()?.walk() {
        let larder::WalkEntry { path, inode } = entry?;
        let metadata = inode.metadata();
        println!("{:6o} {:12} {}", metadata.mode, metadata.size_bytes, path.display());
    }
    Ok(())
}
