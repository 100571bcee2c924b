//! `larder inspect map-swapfile`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder::{ExtentKind, FileType, ItemType, Key, MountedFilesystem, Overview, Profile};
use larder_format::item::Chunk as ChunkItem;
use larder_format::{Logical, objectid};
use larder_ioctl::abi;
use larder_volume::{Chunk, ChunkMap};
use rustix::fs::IFlags;

use crate::global::{Format, Global};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::{Object, write_json};
use crate::source::{Source, on_image};
use crate::target::Target;

/// Show where on the device a swapfile begins, and its resume offset
///
/// The offset is for /sys/power/resume_offset, in pages. The file must be one that the kernel can
/// swap to: written in place, allocated from start to end, on one device, in block groups that keep
/// one copy.
///
/// Examples:
///   larder inspect map-swapfile -r ~/mnt/swapfile
///   larder inspect map-swapfile disk.img:/swapfile
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct MapSwapfile {
    /// Show only the resume offset
    #[arg(short, long)]
    resume_offset: bool,
    #[command(flatten)]
    source: Source,
    /// The file, in an image by its path from the top level, or in a file system that is mounted
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
}

/// A part of the file.
struct Part {
    offset: u64,
    len_bytes: u64,
    address: u64,
    is_inline: bool,
    is_compressed: bool,
}

impl MapSwapfile {
    pub fn run(self, global: &Global) -> Outcome {
        let named = || self.path.display().to_string();
        let (filesystem, len_bytes, parts) = self.find()?;
        let chunks = self.chunks(&*filesystem)?;
        let start = first_place(&chunks, len_bytes, &parts).with_context(named)?;
        let resume_offset = start / rustix::param::page_size() as u64;
        let mut out = stdout();
        match global.format {
            Format::Json => {
                let fields = [("physical-start", start), ("resume-offset", resume_offset)];
                write_json(&mut out, "map-swapfile", &[Object(&fields)])?;
            }
            Format::Text if self.resume_offset => writeln!(out, "{resume_offset}")?,
            Format::Text => {
                writeln!(out, "Physical start: {start:12}")?;
                writeln!(out, "Resume offset:  {resume_offset:12}")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The file system, and the length and the extents of the file.
    fn find(&self) -> anyhow::Result<(Box<dyn Overview>, u64, Vec<Part>)> {
        let named = || self.path.display().to_string();
        if let Some(path) = self.source.mounted_path(&self.path)? {
            // A pipe would make an open wait.
            ensure!(
                path.metadata().with_context(named)?.is_file(),
                "{}: not a regular file",
                named()
            );
            let file = File::open(path).with_context(named)?;
            let parts = parts_of(&file).with_context(named)?;
            let len_bytes = file.metadata().with_context(named)?.len();
            return Ok((Box::new(MountedFilesystem::open(path)?), len_bytes, parts));
        }
        let target = Target::parse(&self.path);
        let filesystem = self.source.open(&target.image)?;
        let inode = filesystem.subvolume("/")?.resolve(target.path_os());
        let inode = inode.with_context(|| on_image(&target.image))?;
        ensure!(inode.file_type() == FileType::Regular, "{}: not a regular file", named());
        check_flags(inode.metadata().ioctl_flags()).with_context(named)?;
        let len_bytes = inode.size_bytes();
        let mut parts = Vec::new();
        for extent in inode.into_file()?.extents_from(0)? {
            let extent = extent?;
            if extent.kind != ExtentKind::Hole {
                parts.push(Part {
                    offset: extent.offset,
                    len_bytes: extent.len_bytes,
                    address: extent.logical.unwrap_or(0),
                    is_inline: extent.kind == ExtentKind::Inline,
                    is_compressed: extent.compression.is_some(),
                });
            }
        }
        Ok((Box::new(filesystem), len_bytes, parts))
    }

    /// The chunks of the file system.
    fn chunks(&self, filesystem: &dyn Overview) -> anyhow::Result<ChunkMap> {
        // Only for the alignment of stripes, which is the same for each size of a sector.
        const SECTOR_BYTES: u32 = 4096;
        let key = |offset| Key::new(objectid::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, offset);
        let items = filesystem.items(objectid::CHUNK_TREE, key(0)..=key(u64::MAX), 0)?;
        let mut chunks = ChunkMap::new();
        for item in items {
            let (key, data) = item?;
            let named = || format!("{}: chunk at {}", self.path.display(), key.offset);
            let item = ChunkItem::parse(&data).with_context(named)?;
            let chunk = Chunk::from_item(Logical(key.offset), &item, SECTOR_BYTES);
            chunks.insert(chunk.with_context(named)?).with_context(named)?;
        }
        Ok(chunks)
    }
}

/// The extents of a file of a mounted file system.
fn parts_of(file: &File) -> anyhow::Result<Vec<Part>> {
    check_flags(rustix::fs::ioctl_getflags(file).map_err(io::Error::from)?.bits())?;
    let part = |extent: io::Result<larder_ioctl::MappedExtent>| {
        let extent = extent?;
        let has = |flag| extent.flags & flag != 0;
        Ok(Part {
            offset: extent.offset,
            len_bytes: extent.len_bytes,
            address: extent.address,
            is_inline: has(abi::EXTENT_INLINE),
            is_compressed: has(abi::EXTENT_ENCODED),
        })
    };
    larder_ioctl::mapped_extents(file.as_fd()).map(part).collect()
}

fn check_flags(flags: u32) -> anyhow::Result<()> {
    let flags = IFlags::from_bits_retain(flags);
    ensure!(flags.contains(IFlags::NOCOW), "file is not NOCOW");
    ensure!(!flags.contains(IFlags::COMPRESSED), "file is to be compressed");
    Ok(())
}

/// The place of the first byte on the device, if the kernel can swap to the file.
fn first_place(chunks: &ChunkMap, len_bytes: u64, parts: &[Part]) -> anyhow::Result<u64> {
    let mut first = None;
    let mut end = 0;
    for part in parts {
        ensure!(!part.is_inline, "file with inline extent");
        ensure!(!part.is_compressed, "compressed extent at {}", part.offset);
        ensure!(part.offset == end, "file with holes");
        end = part.offset + part.len_bytes;
        let mut at = part.address;
        while at < part.address + part.len_bytes {
            let Some(chunk) = chunks.get(Logical(at)) else {
                bail!("no chunk has the data at {at}")
            };
            let profile = chunk.profile();
            ensure!(
                profile == Profile::Single,
                "unsupported block group profile: {}",
                profile.name()
            );
            let stripe = &chunk.stripes()[0];
            let place = stripe.physical.0 + (at - chunk.logical().0);
            let (device, _) = *first.get_or_insert((stripe.devid, place));
            ensure!(device == stripe.devid, "file stored on multiple devices");
            at = chunk.end().0;
        }
    }
    ensure!(end >= len_bytes, "file with holes");
    let Some((_, place)) = first else { bail!("file with no space of its own") };
    Ok(place)
}
