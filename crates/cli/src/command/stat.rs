//! `larder stat`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use larder::{FileType, Inode, Metadata, Timestamp};
use serde::Serialize;

use super::getfattr::XattrObject;
use crate::global::Global;
use crate::mode;
use crate::outcome::Outcome;
use crate::output::{stdout, write_name};
use crate::print::{Name, local_time, precise_local_time, write_json};
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
    pub fn run(self, global: &Global) -> Outcome {
        let mut out = stdout();
        if global.is_json() {
            let objects = self.paths.iter().map(|path| {
                let inode = self.source.find(path, self.dereference)?;
                Shown::new(path, &inode)
            });
            let objects = objects.collect::<anyhow::Result<Vec<_>>>()?;
            write_json(&mut out, "stat", &objects)?;
            return Ok(ExitCode::SUCCESS);
        }
        for path in &self.paths {
            let inode = self.source.find(path, self.dereference)?;
            write!(out, "  File: ")?;
            write_name(&mut out, path)?;
            if inode.file_type() == FileType::Symlink {
                write!(out, " -> ")?;
                write_name(&mut out, inode.link_target()?)?;
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
    for path in further_names(inode)? {
        write!(out, "  Name: /")?;
        write_name(out, path)?;
        writeln!(out)?;
    }
    for xattr in inode.xattrs() {
        let xattr = xattr?;
        write!(out, " Xattr: ")?;
        write_name(out, &xattr.name)?;
        writeln!(out, "=\"{}\"", xattr.value.escape_ascii())?;
    }
    Ok(())
}

/// The paths of an inode that has several; they start at its subvolume.
fn further_names(inode: &Inode) -> anyhow::Result<Vec<PathBuf>> {
    let has_several = inode.metadata().nlink > 1 && inode.file_type() != FileType::Directory;
    Ok(if has_several { inode.paths()? } else { Vec::new() })
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

/// A file as JSON.
#[derive(Serialize)]
struct Shown {
    path: Name,
    target: Option<Name>,
    #[serde(flatten)]
    attributes: Attributes,
    names: Vec<Name>,
    xattrs: Vec<XattrObject>,
}

/// The attributes of a file as JSON; sizes are in bytes.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Attributes {
    #[serde(rename = "type")]
    file_type: &'static str,
    size: u64,
    /// As its blocks say, uncompressed.
    allocated: u64,
    subvolume: u64,
    inode: u64,
    nlink: u32,
    /// Major and minor number of a device node.
    device: Option<(u32, u32)>,
    /// Type and permissions, as stat(2) has them.
    mode: u32,
    uid: u32,
    gid: u32,
    atime: String,
    mtime: String,
    ctime: String,
    otime: String,
    flags: Vec<&'static str>,
    generation: u64,
    change_generation: u64,
}

impl Shown {
    fn new(path: &OsStr, inode: &Inode) -> anyhow::Result<Self> {
        let target = match inode.file_type() {
            FileType::Symlink => Some((&inode.link_target()?).into()),
            _ => None,
        };
        let xattrs = inode.xattrs().map(|xattr| Ok(XattrObject::new(&xattr?)));
        let names = further_names(inode)?;
        let from_root = |path: &PathBuf| (&Path::new("/").join(path)).into();
        Ok(Self {
            path: path.into(),
            target,
            attributes: Attributes::new(&inode.metadata()),
            names: names.iter().map(from_root).collect(),
            xattrs: xattrs.collect::<anyhow::Result<_>>()?,
        })
    }
}

impl Attributes {
    pub fn new(metadata: &Metadata) -> Self {
        let m = metadata;
        let time = |time: Timestamp| precise_local_time(time.seconds, time.nanoseconds);
        let is_device = matches!(m.file_type, FileType::BlockDevice | FileType::CharDevice);
        Self {
            file_type: type_name(m.file_type),
            size: m.size_bytes,
            allocated: m.allocated_bytes + m.dirty_bytes,
            subvolume: m.subvolume,
            inode: m.inode,
            nlink: m.nlink,
            device: is_device.then_some(m.device),
            mode: m.mode,
            uid: m.uid,
            gid: m.gid,
            atime: time(m.atime),
            mtime: time(m.mtime),
            ctime: time(m.ctime),
            otime: time(m.otime),
            flags: m.flags.iter_names().map(|(name, _)| name).collect(),
            generation: m.generation,
            change_generation: m.change_generation,
        }
    }
}
