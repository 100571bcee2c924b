//! `larder inspect min-dev-size`.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;

use anyhow::{anyhow, ensure};
use clap::Args;
use larder::{ItemType, Key};
use larder_format::item::DevExtent;
use larder_format::{objectid, superblock};
use zerocopy::FromBytes;

use crate::global::{Format, Global};
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::{Object, write_json};
use crate::source::Source;
use crate::units::Units;

/// Show the size that a device can be shrunk to
///
/// Parts of block groups past that size would move into gaps before it.
///
/// Examples:
///   larder inspect min-dev-size disk.img
///   larder inspect min-dev-size --id 2 ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct MinDevSize {
    /// Id of the device
    #[arg(long, value_name = "ID", default_value_t = 1, value_parser = parse_number)]
    id: u64,
    #[command(flatten)]
    source: Source,
    /// The image file or block device, or a directory of a file system that is mounted
    #[arg(value_name = "IMAGE[:/PATH] or PATH")]
    path: OsString,
}

/// Space at the start of each device that nothing is allocated in.
const RESERVED_BYTES: u64 = 1 << 20;
/// A system chunk that may be allocated while block groups move.
const SYSTEM_CHUNK_BYTES: u64 = 32 << 20;

impl MinDevSize {
    pub fn run(self, global: &Global) -> Outcome {
        let filesystem = self.source.overview(&self.path)?;
        let is_there = filesystem.devices()?.iter().any(|device| device.id == self.id);
        ensure!(is_there, "{}: has no device {}", self.path.display(), self.id);
        let key = |offset| Key::new(self.id, ItemType::DEV_EXTENT, offset);
        let mut taken = Vec::new();
        for item in filesystem.items(objectid::DEV_TREE, key(0)..=key(u64::MAX), 0)? {
            let (key, data) = item?;
            let extent = DevExtent::ref_from_bytes(&data);
            let extent = extent.map_err(|_| {
                anyhow!("{}: device extent at {} is damaged", self.path.display(), key.offset)
            })?;
            taken.push(key.offset..key.offset + extent.length.get());
        }
        let bytes = min_size(&taken);
        let mut out = stdout();
        match global.format {
            Format::Json => {
                let fields = [("devid", self.id), ("min-dev-size", bytes)];
                write_json(&mut out, "min-dev-size", &[Object(&fields)])?;
            }
            Format::Text => writeln!(out, "{bytes} bytes ({})", Units::default().show(bytes))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The size for these parts of a device, which are in order.
fn min_size(taken: &[Range<u64>]) -> u64 {
    let len = |range: &Range<u64>| range.end - range.start;
    let gap = |pair: &[Range<u64>]| pair[0].end..pair[1].start;
    let mut gaps: VecDeque<Range<u64>> =
        taken.windows(2).map(gap).filter(|gap| !gap.is_empty()).collect();
    let mut size = RESERVED_BYTES + taken.iter().map(len).sum::<u64>();
    let mut moved = 0;
    for part in taken.iter().rev() {
        if part.end <= size + 1 {
            break;
        }
        let fits = |gap: &Range<u64>| len(gap) >= len(part) && !has_superblock(gap);
        let Some(gap) = gaps.iter_mut().find(|gap| fits(gap)) else {
            size = part.end;
            break;
        };
        gap.start += len(part);
        moved = moved.max(len(part));
    }
    // Each block group moves by itself, so the largest needs scratch space.
    if moved > 0 { size + moved + SYSTEM_CHUNK_BYTES } else { size }
}

/// Whether a superblock lies in the range.
fn has_superblock(range: &Range<u64>) -> bool {
    superblock::OFFSETS.iter().any(|offset| range.contains(&offset.0))
}
