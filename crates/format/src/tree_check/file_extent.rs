//! Ranges of files, and checksums of data.

use super::{Context, Item, Verdict, ensure};
use crate::compression::Algorithm;
use crate::item::{FileExtent, FileExtentHeader, RegularExtent};
use crate::objectid::EXTENT_CSUM;

pub(super) fn check_file_extent(item: &Item<'_>, context: &Context) -> Verdict {
    let start = item.key.offset;
    ensure(context.is_aligned(start), || {
        format!("file offset {start} is not a multiple of {}", context.sectorsize)
    })?;
    item.ensure_follows_its_inode()?;
    let extent = FileExtent::parse(item.data).map_err(|e| e.to_string())?;
    let header = extent.header();
    ensure(header.compression <= Algorithm::Zstd.to_disk(), || {
        format!("unknown compression {}", header.compression)
    })?;
    ensure(header.encryption == 0, || format!("unknown encryption {}", header.encryption))?;
    match extent {
        FileExtent::Inline { header, data } => return check_inline(start, header, data),
        FileExtent::Regular { header, extent, .. } => check_regular(header, extent, context)?,
    }
    ensure(start.checked_add(extent.num_bytes()).is_some(), || "ends past 2^64".into())?;
    let Some(previous) = item.previous_of_same_object() else { return Ok(()) };
    let end = file_extent_end(previous.key.offset, previous.data, context);
    ensure(end <= start, || format!("starts before the one before it ends at {end}"))
}

fn check_inline(start: u64, header: &FileExtentHeader, data: &[u8]) -> Verdict {
    ensure(start == 0, || format!("inline data at file offset {start}"))?;
    let ram_bytes = header.ram_bytes.get();
    ensure(header.compression != 0 || ram_bytes == data.len() as u64, || {
        format!("{} bytes of inline data that say they are {ram_bytes}", data.len())
    })
}

fn check_regular(header: &FileExtentHeader, extent: &RegularExtent, context: &Context) -> Verdict {
    let fields = [
        ("ram_bytes", header.ram_bytes),
        ("disk_bytenr", extent.disk_bytenr),
        ("disk_num_bytes", extent.disk_num_bytes),
        ("offset", extent.offset),
        ("num_bytes", extent.num_bytes),
    ];
    for (name, value) in fields {
        ensure(context.is_aligned(value.get()), || {
            format!("{name} {value} is not a multiple of {}", context.sectorsize)
        })?;
    }
    Ok(())
}

/// The end of a sound file extent: inline data fills its last sector.
fn file_extent_end(start: u64, data: &[u8], context: &Context) -> u64 {
    match FileExtent::parse(data) {
        Ok(FileExtent::Inline { header, .. }) => start
            .saturating_add(header.ram_bytes.get())
            .checked_next_multiple_of(u64::from(context.sectorsize))
            .unwrap_or(u64::MAX),
        Ok(FileExtent::Regular { extent, .. }) => start.saturating_add(extent.num_bytes.get()),
        Err(_) => start,
    }
}

pub(super) fn check_csums(item: &Item<'_>, context: &Context) -> Verdict {
    let (key, size) = (item.key, context.checksum.size());
    ensure(key.objectid == EXTENT_CSUM, || "checksums under another objectid".into())?;
    ensure(context.is_aligned(key.offset), || {
        format!("address {} is not a multiple of {}", key.offset, context.sectorsize)
    })?;
    ensure(item.data.len().is_multiple_of(size), || {
        format!("{} bytes are no whole number of {}", item.data.len(), context.checksum)
    })?;
    let Some(previous) = item.previous_of_same_object() else { return Ok(()) };
    let covered = (previous.data.len() / size) as u64 * u64::from(context.sectorsize);
    let end = previous.key.offset.saturating_add(covered);
    ensure(end <= key.offset, || format!("starts before the one before it ends at {end}"))
}
