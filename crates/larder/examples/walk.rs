//! Lists everything below the top level of an image: `walk IMAGE...`

use std::path::{Path, PathBuf};

use larder::{Directory, FileType};

fn main() -> anyhow::Result<()> {
    let fs = larder::OpenOptions::new().open(std::env::args_os().skip(1))?;
    if fs.needs_log_replay() {
        eprintln!("a crash left log trees, whose changes are not shown");
    }
    list(&fs.subvolume("/")?.root()?, Path::new("/"))
}

fn list(directory: &Directory, path: &Path) -> anyhow::Result<()> {
    let mut pending: Vec<(Directory, PathBuf)> = vec![(directory.clone(), path.to_owned())];
    while let Some((directory, path)) = pending.pop() {
        for entry in directory.entries()? {
            let entry = entry?;
            let (inode, path) = (entry.open()?, path.join(entry.name()));
            let metadata = inode.metadata();
            println!("{:6o} {:12} {}", metadata.mode, metadata.size_bytes, path.display());
            if inode.file_type() == FileType::Directory {
                pending.push((inode.into_directory()?, path));
            }
        }
    }
    Ok(())
}
