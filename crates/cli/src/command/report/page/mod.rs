//! The report as one static page.
//!
//! Every picture has its numbers as a table. Without scripts only the map of places is missing.
//! The page loads nothing, and its policy forbids that.

mod devices;
mod files;
mod health;
mod html;
mod places;

use std::fmt::Write;

use self::html::{Cell, Html, MOST_ROWS, count, escape, size};
use super::document::{Compression, Device, Document, Subvolume};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub fn page(document: &Document) -> String {
    let about = &document.filesystem;
    let title = if about.label.is_empty() { &about.source } else { &about.label };
    let mut html = Html::default();
    html.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.raw(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n",
    );
    html.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
    html.raw(&format!("<title>Space of {}</title>\n", escape(title)));
    html.raw(&format!("<style>\n{STYLE}</style>\n</head>\n<body>\n"));
    head(&mut html, document, title);
    html.raw("<main>\n");
    places::section(&mut html, document);
    subvolumes(&mut html, &document.subvolumes);
    devices::section(&mut html, document);
    compression(&mut html, &document.compression);
    files::section(&mut html, &document.fragmentation);
    health::section(&mut html, document);
    html.raw("</main>\n<footer><p>Made by <code>larder report</code>.</p></footer>\n");
    html.raw(&format!("<script>\n{SCRIPT}</script>\n</body>\n</html>\n"));
    html.into_text()
}

fn head(html: &mut Html, document: &Document, title: &str) {
    let about = &document.filesystem;
    html.raw(&format!("<header>\n<h1>Space of <bdi>{}</bdi></h1>\n", escape(title)));
    html.raw(&format!(
        "<p class=\"about\"><bdi>{}</bdi> · {} · commit {}</p>\n",
        escape(&about.source),
        escape(&about.uuid),
        about.generation
    ));
    for notice in &document.notices {
        html.raw(&format!("<p class=\"notice\" role=\"note\">{}</p>\n", escape(notice)));
    }
    // New space never comes from a seed.
    let own = || document.devices.iter().filter(|device| !device.is_seed);
    let sum = |of: fn(&Device) -> u64| own().map(of).fold(0, u64::saturating_add);
    let (devices, allocated) = (sum(|one| one.total_bytes), sum(|one| one.allocated_bytes));
    let data = &document.data;
    let saved = data.referenced_bytes.saturating_sub(data.disk_bytes);
    let spaces = document.space.iter().filter(|space| space.kind != "Data");
    let trees = spaces.map(|space| space.used_bytes).fold(0, u64::saturating_add);
    html.raw("<dl class=\"cards\">\n");
    let of_devices = format!("{} of it allocated", size(allocated));
    html.card("Devices", devices, &of_devices);
    html.card("Files refer to", data.referenced_bytes, "in all subvolumes and snapshots");
    html.card("Data on disk", data.disk_bytes, &format!("in {} extents", count(data.extents)));
    html.card("Saved", saved, "by sharing and compression");
    html.card("Trees", trees, "names, attributes, checksums, small files");
    html.raw("</dl>\n</header>\n");
}

fn subvolumes(html: &mut Html, subvolumes: &[Subvolume]) {
    html.begin_section("subvolumes", "Subvolumes and snapshots");
    html.paragraph(
        "Alone is what no other subvolume refers to: deleting the subvolume gives it back. \
         Snapshots that share something with each other only give that back when all of them go.",
    );
    let alone = |one: &Subvolume| one.exclusive_bytes.saturating_add(one.exclusive_tree_bytes);
    let all = |one: &Subvolume| one.disk_bytes.saturating_add(one.tree_bytes);
    let mut order: Vec<&Subvolume> = subvolumes.iter().collect();
    order.sort_by_key(|one| std::cmp::Reverse(alone(one)));
    let greatest = subvolumes.iter().map(all).max().unwrap_or(0);
    let rows = order.iter().take(MOST_ROWS).map(|one| {
        let kind = match (one.state, one.is_snapshot, one.is_read_only) {
            ("deleted", ..) => "being deleted",
            (_, true, true) => "read-only snapshot",
            (_, true, false) => "snapshot",
            (_, false, true) => "read-only",
            _ => "subvolume",
        };
        vec![
            Cell::text(one.path.as_deref().unwrap_or("no path")),
            Cell::Bar { alone: alone(one), all: all(one), of: greatest },
            Cell::Bytes(alone(one)),
            Cell::Bytes(one.exclusive_bytes),
            Cell::Bytes(one.disk_bytes),
            Cell::Bytes(one.tree_bytes),
            Cell::Bytes(one.file_bytes),
            Cell::text(kind),
            Cell::Plain(one.id.to_string()),
        ]
    });
    let heads =
        ["Path", "", "Alone", "Data alone", "Data", "Trees", "Files refer to", "Kind", "Id"];
    html.table("What each subvolume holds, those with most alone first", &heads, rows);
    html.left_out(subvolumes.len(), MOST_ROWS, "subvolumes that have less alone");
    html.end_section();
}

fn compression(html: &mut Html, compression: &[Compression]) {
    html.begin_section("compression", "Compression");
    html.paragraph(
        "The ratio is what the data takes of what it would take uncompressed. Inline data is in \
         tree blocks, beside the names of small files.",
    );
    let rows = compression.iter().map(|one| {
        let percent = 100.0 * one.disk_bytes as f64 / one.uncompressed_bytes.max(1) as f64;
        let mut name = String::from(match one.stored_as {
            "none" => "not compressed",
            "prealloc" => "preallocated, not written",
            algorithm => algorithm,
        });
        if one.is_inline {
            let _ = write!(name, ", inline");
        }
        vec![
            Cell::text(&name),
            Cell::Bar {
                alone: one.disk_bytes,
                all: one.uncompressed_bytes,
                of: greatest(compression),
            },
            Cell::Plain(format!("{percent:.0} %")),
            Cell::Bytes(one.disk_bytes),
            Cell::Bytes(one.uncompressed_bytes),
            Cell::Bytes(one.referenced_bytes),
            Cell::Count(one.extents),
        ]
    });
    let heads = ["Stored", "", "Ratio", "On disk", "Uncompressed", "Files refer to", "Extents"];
    html.table("Data by the way it is stored", &heads, rows);
    html.end_section();
}

fn greatest(compression: &[Compression]) -> u64 {
    compression.iter().map(|one| one.uncompressed_bytes).max().unwrap_or(0)
}
