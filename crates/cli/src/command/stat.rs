//! `larder stat`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larder::{FileType, Inode, Timestamp};

use super::Outcome;
use crate::mode;
use crate::output::stdout;
use crate::print::local_time;
use crate::source::PathSource;

/// Show all attributes of files in a file system that is not mounted
///
/// Example: larder stat disk.img:/etc/fstab
#[derive(Debug, Args)]
pub struct Stat {
    /// Show what symbolic links lead to
    #[arg(short = 'L', long)]
    dereference: bool,
    #[command(flatten)]
    source: PathSource,
    /// What to show
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

impl Stat {
    pub fn run(self) -> Outcome {
        let mut out = stdout();
        for path in &self.paths {
            let inode = self.source.find(path, self.dereference)?;
            write!(out, "  File: {}", path.display())?;
            if inode.file_type() == FileType::Symlink {
                write!(out, " -> {}", inode.link_target()?.display())?;
            }
            writeln!(out)?;
            show(&mut out, &inode)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(out: &mut impl Write, inode: &Inode) -> anyhow::Result<()> {
    let m = inode.metadata();
    let blocks = m.allocated_bytes / 512;
    writeln!(out, "  Size: {:<15} Blocks: {blocks:<10} {}", m.size_bytes, type_name(m.file_type))?;
    writeln!(out, "Subvolume: {:<10} Inode: {:<12} Links: {}", m.subvolume, m.inode, m.nlink)?;
    if matches!(m.file_type, FileType::BlockDevice | FileType::CharDevice) {
        writeln!(out, "Device type: {},{}", m.device.0, m.device.1)?;
    }
    let mode = mode::text(m.mode);
    writeln!(out, "Access: ({:04o}/{mode})  Uid: {}  Gid: {}", m.mode & 0o7777, m.uid, m.gid)?;
    for (name, time) in
        [("Access", m.atime), ("Modify", m.mtime), ("Change", m.ctime), (" Birth", m.otime)]
    {
        writeln!(out, "{name}: {}", time_text(time))?;
    }
    let flags: Vec<&str> = m.flags.iter_names().map(|(name, _)| name).collect();
    let flags = if flags.is_empty() { "none".into() } else { flags.join("|") };
    writeln!(out, " Flags: {flags}")?;
    writeln!(out, "Generation: {}  Changed in: {}", m.generation, m.change_generation)?;
    if m.nlink > 1 && m.file_type != FileType::Directory {
        let paths = inode.paths()?;
        paths.iter().try_for_each(|path: &PathBuf| writeln!(out, "  Name: /{}", path.display()))?;
    }
    for xattr in inode.xattrs() {
        let xattr = xattr?;
        writeln!(out, " Xattr: {}=\"{}\"", xattr.name.display(), xattr.value.escape_ascii())?;
    }
    Ok(())
}

fn time_text(time: Timestamp) -> String {
    format!("{}.{:09}", local_time(time.seconds), time.nanoseconds)
}

fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::BlockDevice => "block special file",
        FileType::CharDevice => "character special file",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}
