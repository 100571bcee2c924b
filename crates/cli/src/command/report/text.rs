//! A report as text, for a terminal: what can be freed, and by what.

use std::fmt::Write;

use super::document::{Document, PlaceFields, Subvolume};
use crate::print::{Cell, write_table};
use crate::units::Units;

/// The most lines of a list.
const MOST_LINES: usize = 20;

/// The report; it ends with a newline.
pub fn text(document: &Document) -> anyhow::Result<String> {
    let mut text = String::new();
    head(&mut text, document);
    subvolumes(&mut text, &document.subvolumes)?;
    places(&mut text, document)?;
    saved(&mut text, document);
    health(&mut text, document);
    for notice in &document.notices {
        let _ = writeln!(text, "Note: {notice}");
    }
    Ok(text)
}

fn head(text: &mut String, document: &Document) {
    let about = &document.filesystem;
    let label = if about.label.is_empty() { "none".into() } else { format!("'{}'", about.label) };
    let _ = writeln!(text, "{}: label {label}, uuid {}", about.source, about.uuid);
    for space in &document.space {
        let (used, total) = (size(space.used_bytes), size(space.total_bytes));
        let _ = writeln!(text, "{}, {}: {used} used of {total}", space.kind, space.profile);
    }
}

/// The subvolumes, and what deleting each of them alone gives back.
fn subvolumes(text: &mut String, subvolumes: &[Subvolume]) -> anyhow::Result<()> {
    let freed = |one: &Subvolume| one.exclusive_bytes.saturating_add(one.exclusive_tree_bytes);
    let mut can_go: Vec<&Subvolume> =
        subvolumes.iter().filter(|one| one.id != TOP_LEVEL && one.state != "deleted").collect();
    can_go.sort_by_key(|one| (std::cmp::Reverse(freed(one)), one.id));
    let rows = can_go.iter().map(|one| {
        let kind = match (one.is_snapshot, one.is_read_only) {
            (true, true) => "read-only snapshot",
            (true, false) => "snapshot",
            (false, true) => "read-only subvolume",
            (false, false) => "subvolume",
        };
        let path = one.path.clone().unwrap_or_else(|| format!("(id {})", one.id));
        let disk_bytes = one.disk_bytes.saturating_add(one.tree_bytes);
        [size(freed(one)), size(disk_bytes), format!("{path} ({kind})")]
    });
    list(text, "Deleting one of these subvolumes frees", rows)
}

/// Directories and large files, and what deleting each of them alone gives back.
fn places(text: &mut String, document: &Document) -> anyhow::Result<()> {
    let is_listed = |place: &&PlaceFields| {
        matches!(place.kind, "directory" | "file") && place.exclusive_bytes > 0
    };
    let mut places: Vec<&PlaceFields> = document.places.iter().filter(is_listed).collect();
    places.sort_by(|a, b| b.exclusive_bytes.cmp(&a.exclusive_bytes).then(a.path.cmp(&b.path)));
    let rows = places.iter().map(|place| {
        let slash = if place.kind == "directory" { "/" } else { "" };
        let path = format!("{}{slash}", place.path);
        [size(place.exclusive_bytes), size(place.disk_bytes), path]
    });
    list(text, "Deleting one of these directories or files frees", rows)
}

fn list(
    text: &mut String,
    heading: &str,
    rows: impl ExactSizeIterator<Item = [String; 3]>,
) -> anyhow::Result<()> {
    let more = rows.len().saturating_sub(MOST_LINES);
    if rows.len() == 0 {
        return Ok(());
    }
    let row = |[freed, held, path]: [String; 3]| {
        vec![Cell::Right(freed), Cell::Right(held), Cell::Left(path)]
    };
    let columns = ["freed", "held", ""].map(str::to_owned);
    let rows: Vec<_> = [row(columns)].into_iter().chain(rows.take(MOST_LINES).map(row)).collect();
    let mut table = Vec::new();
    write_table(&mut table, &rows)?;
    let _ = writeln!(text, "\n{heading}:");
    for line in String::from_utf8_lossy(&table).lines() {
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    if more > 0 {
        let _ = writeln!(text, "  and {more} more");
    }
    Ok(())
}

/// What compression and shared data save.
fn saved(text: &mut String, document: &Document) {
    let data = &document.data;
    let by_compression = data.uncompressed_bytes.saturating_sub(data.disk_bytes);
    let by_sharing = data.referenced_bytes.saturating_sub(data.uncompressed_bytes);
    let (by_compression, by_sharing) = (size(by_compression), size(by_sharing));
    let _ = writeln!(text, "\nSaved: {by_sharing} by sharing, {by_compression} by compression");
}

/// Errors of devices, and findings of a check.
fn health(text: &mut String, document: &Document) {
    for device in &document.devices {
        let count = device.errors.as_ref().map_or(0, super::document::Errors::sum);
        if count > 0 {
            let name = device.name.as_deref().unwrap_or("missing");
            let _ = writeln!(text, "Device {} ({name}): {count} errors", device.id);
        }
    }
    if let Some(check) = &document.check {
        let count = check.count();
        let _ = writeln!(text, "Check: {count} findings; larder check shows them");
    }
}

/// Id of the top level, which cannot be deleted.
const TOP_LEVEL: u64 = 5;

fn size(bytes: u64) -> String {
    Units::default().show(bytes)
}
