//! `larder subvolume find-new`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::{ItemType, Key, Overview};
use larder_format::item::FileExtent;
use serde::Serialize;

use super::found::subvolume_in;
use crate::global::{Format, Global};
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::{stdout, write_name};
use crate::print::{JsonList, Name};
use crate::source::Source;

/// List what was written to the files of a subvolume since a generation
///
/// Each line is a part of a file: its place in the file and on disk, and its generation. The last
/// line has the generation of the subvolume, from which the next call can go on. What was removed
/// or renamed is not told. A mounted file system is synced first.
///
/// Examples:
///   larder subvolume find-new ~/mnt/home 1200
///   larder subvolume find-new disk.img:/home 0
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct FindNew {
    #[command(flatten)]
    source: Source,
    /// The subvolume, in an image by its path from the top level, or in a file system that is
    /// mounted
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    pub(super) path: OsString,
    /// The first generation to list; 0 lists everything
    #[arg(value_name = "GENERATION", value_parser = parse_number)]
    since: u64,
}

/// A part of a file.
#[derive(Clone, Copy)]
struct Part {
    inode: u64,
    offset: u64,
    len_bytes: u64,
    disk_start: u64,
    disk_offset: u64,
    generation: u64,
    is_compressed: bool,
    /// `INLINE` or `PREALLOC`; empty for an extent that has data.
    kind: &'static str,
}

impl FindNew {
    pub fn run(self, global: &Global) -> Outcome {
        if let Some(path) = self.source.mounted_path(&self.path)? {
            let named = || path.display().to_string();
            let root = File::open(path).with_context(named)?;
            larder_ioctl::sync(root).with_context(named)?;
        }
        let (filesystem, id) = subvolume_in(&self.source, &self.path)?;
        let mut out = io::BufWriter::new(stdout());
        let mut list = match global.format {
            Format::Json => Some(JsonList::new("subvolume-find-new")),
            Format::Text => None,
        };
        let mut named = None;
        let range = Key::new(0, ItemType::EXTENT_DATA, 0)
            ..=Key::new(u64::MAX, ItemType::EXTENT_DATA, u64::MAX);
        for item in filesystem.items(id, range, self.since)? {
            let (key, data) = item?;
            if key.item_type != ItemType::EXTENT_DATA {
                continue;
            }
            let part = Part::of(key, &data).with_context(|| format!("inode {}", key.objectid))?;
            if part.generation < self.since {
                continue;
            }
            if !matches!(&named, Some((inode, _)) if *inode == part.inode) {
                named = Some((part.inode, path_of(&*filesystem, id, part.inode)?));
            }
            // A file that has no name any more is left out.
            let Some((_, Some(path))) = &named else { continue };
            match &mut list {
                Some(list) => list.push(&mut out, &part.object(path))?,
                None => part.write(&mut out, path)?,
            }
        }
        let marker = filesystem.subvolume_info(id)?.generation;
        match list {
            Some(list) => list.end_with(&mut out, &[("transid-marker", marker)])?,
            None => writeln!(out, "transid marker was {marker}")?,
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A path of an inode, if it has one.
fn path_of(filesystem: &dyn Overview, id: u64, inode: u64) -> anyhow::Result<Option<OsString>> {
    match filesystem.inode_path(id, inode) {
        Err(error) if error.kind() == larder::ErrorKind::NotFound => Ok(None),
        path => Ok(Some(path?.into())),
    }
}

impl Part {
    fn of(key: Key, item: &[u8]) -> anyhow::Result<Self> {
        let parsed = FileExtent::parse(item)?;
        let header = parsed.header();
        let (len_bytes, disk_start, disk_offset, kind) = match parsed {
            FileExtent::Inline { header, .. } => (header.ram_bytes.get(), 0, 0, "INLINE"),
            FileExtent::Regular { extent, preallocated, .. } => (
                extent.num_bytes.get(),
                extent.disk_bytenr.get(),
                extent.offset.get(),
                if preallocated { "PREALLOC" } else { "" },
            ),
        };
        Ok(Self {
            inode: key.objectid,
            offset: key.offset,
            len_bytes,
            disk_start,
            disk_offset,
            generation: header.generation.get(),
            is_compressed: header.compression != 0,
            kind,
        })
    }

    fn flags(&self) -> String {
        let compressed = if self.is_compressed { "COMPRESS" } else { "" };
        match (compressed, self.kind) {
            ("", "") => "NONE".into(),
            (flag, "") | ("", flag) => flag.into(),
            (compressed, kind) => format!("{compressed}|{kind}"),
        }
    }

    fn write(&self, out: &mut impl Write, path: &OsStr) -> io::Result<()> {
        let Self { inode, offset, len_bytes, disk_start, disk_offset, generation, .. } = *self;
        let flags = self.flags();
        write!(
            out,
            "inode {inode} file offset {offset} len {len_bytes} disk start {disk_start} \
             offset {disk_offset} gen {generation} flags {flags} "
        )?;
        write_name(out, path)?;
        writeln!(out)
    }

    fn object(&self, path: &OsStr) -> Object {
        Object {
            inode: self.inode,
            file_offset: self.offset,
            len: self.len_bytes,
            disk_start: self.disk_start,
            disk_offset: self.disk_offset,
            generation: self.generation,
            flags: self.flags(),
            path: path.into(),
        }
    }
}

/// A part of a file as JSON.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    inode: u64,
    file_offset: u64,
    len: u64,
    disk_start: u64,
    disk_offset: u64,
    #[serde(rename = "gen")]
    generation: u64,
    flags: String,
    path: Name,
}
