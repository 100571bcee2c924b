//! Devices, and where block groups lie on them.

use super::html::{Cell, Html, MOST_ROWS, count, escape, size};
use crate::command::report::document::{Device, Document};

/// Most rectangles in the picture of a device.
const MOST_CELLS: usize = 400;
/// Width of the picture in its own units, and height.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 40.0;

/// A part of a device.
#[derive(Clone, Copy)]
struct Stretch {
    offset: u64,
    len_bytes: u64,
    kind: &'static str,
    used_bytes: u64,
}

pub fn section(html: &mut Html, document: &Document) {
    html.begin_section("devices", "Devices and block groups");
    let has_mixed = document.space.iter().any(|space| class_of(space.kind) == "mixed");
    let mixed = if has_mixed { "<span class=\"key mixed\"></span> data and metadata " } else { "" };
    html.raw(&format!(
        "<p class=\"legend\"><span class=\"key data\"></span> data \
         <span class=\"key metadata\"></span> metadata <span class=\"key system\"></span> system \
         {mixed}<span class=\"key free\"></span> not allocated; the strong part of each is in \
         use</p>\n",
    ));
    for device in &document.devices {
        picture(html, document, device);
    }
    let rows = document.space.iter().map(|space| {
        vec![
            Cell::text(&format!("{}, {}", space.kind, space.profile)),
            Cell::Bar { alone: space.used_bytes, all: space.total_bytes, of: space.total_bytes },
            Cell::Bytes(space.used_bytes),
            Cell::Bytes(space.total_bytes),
            Cell::Bytes(space.device_bytes),
        ]
    });
    html.table(
        "Space by purpose and profile",
        &["Purpose", "", "Used", "Allocated", "On devices"],
        rows,
    );
    html.raw("<details>\n<summary>All block groups</summary>\n");
    let rows = document.block_groups.iter().take(MOST_ROWS).map(|group| {
        let place = |stripe: &crate::command::report::document::Stripe| {
            format!("{} at {}", stripe.device, size(stripe.offset))
        };
        let places: Vec<String> = group.stripes.iter().map(place).collect();
        vec![
            Cell::Plain(count(group.logical)),
            Cell::text(&format!("{}, {}", group.kind, group.profile)),
            Cell::Bar { alone: group.used_bytes, all: group.total_bytes, of: group.total_bytes },
            Cell::Bytes(group.used_bytes),
            Cell::Bytes(group.total_bytes),
            Cell::text(&places.join(", ")),
        ]
    });
    let heads = ["Address", "Purpose", "", "Used", "Size", "Devices"];
    html.table("Block groups by address", &heads, rows);
    html.left_out(document.block_groups.len(), MOST_ROWS, "block groups");
    html.raw("</details>\n");
    html.end_section();
}

fn picture(html: &mut Html, document: &Document, device: &Device) {
    let name = device.name.as_deref().unwrap_or("missing");
    let text = format!(
        "Device {} ({name}): {} of {} allocated",
        device.id,
        size(device.allocated_bytes),
        size(device.total_bytes)
    );
    html.raw(&format!("<h3><bdi>{}</bdi></h3>\n", escape(&text)));
    html.raw(&format!(
        "<svg class=\"device\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"{}\">\n",
        escape(&text)
    ));
    let scale = WIDTH / device.total_bytes.max(1) as f64;
    for stretch in stretches(document, device) {
        let (x, width) = (stretch.offset as f64 * scale, stretch.len_bytes as f64 * scale);
        let used = stretch.used_bytes as f64 / stretch.len_bytes.max(1) as f64;
        let (height, class) = (HEIGHT * used.clamp(0.0, 1.0), class_of(stretch.kind));
        let y = HEIGHT - height;
        html.raw(&format!(
            "<g class=\"{class}\"><title>{} at {}, {:.0} % used</title>\
             <rect x=\"{x:.2}\" y=\"0\" width=\"{width:.2}\" height=\"{HEIGHT}\"/>\
             <rect class=\"used\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" \
             height=\"{height:.2}\"/></g>\n",
            escape(stretch.kind),
            size(stretch.offset),
            100.0 * used
        ));
    }
    html.raw("</svg>\n");
}

/// What lies where on a device, in order. Where there is more than a picture can show, neighbours
/// are one, of the kind of the largest.
fn stretches(document: &Document, device: &Device) -> Vec<Stretch> {
    let mut all = Vec::new();
    for group in &document.block_groups {
        for stripe in group.stripes.iter().filter(|stripe| stripe.device == device.id) {
            let share = u128::from(group.used_bytes) * u128::from(group.stripe_bytes)
                / u128::from(group.total_bytes.max(1));
            all.push(Stretch {
                offset: stripe.offset,
                len_bytes: group.stripe_bytes,
                kind: group.kind,
                used_bytes: share as u64,
            });
        }
    }
    all.sort_by_key(|stretch| stretch.offset);
    let together = all.len().div_ceil(MOST_CELLS).max(1);
    all.chunks(together).map(merged).collect()
}

fn merged(parts: &[Stretch]) -> Stretch {
    let first = parts[0];
    let largest = parts.iter().max_by_key(|part| part.len_bytes).map_or(first, |part| *part);
    let end = parts.iter().map(|part| part.offset.saturating_add(part.len_bytes)).max();
    Stretch {
        len_bytes: end.unwrap_or(0).saturating_sub(first.offset),
        kind: largest.kind,
        used_bytes: parts.iter().map(|part| part.used_bytes).fold(0, u64::saturating_add),
        ..first
    }
}

fn class_of(kind: &str) -> &'static str {
    match kind {
        "Data" => "data",
        "Metadata" => "metadata",
        "System" => "system",
        _ => "mixed",
    }
}
