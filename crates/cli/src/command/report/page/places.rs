//! The map of places: rectangles that a script lays out, and the same as a table.

use super::html::{Cell, Html, MOST_ROWS};
use crate::command::report::document::{Document, PlaceFields};

pub fn section(html: &mut Html, document: &Document) {
    html.begin_section("places", "Where the space went");
    html.paragraph(
        "The size of a rectangle is what a directory or file refers to on disk. The plain part is \
         alone here: deleting it all gives that back. The striped part is shared with other \
         places, such as snapshots or copies, and is in the rectangles there too. A tap opens a \
         directory.",
    );
    html.raw(
        "<p class=\"legend\"><span class=\"key own\"></span> alone here \
         <span class=\"key shared\"></span> shared with other places</p>\n\
         <div id=\"map\" hidden>\n<nav id=\"trail\" aria-label=\"Directories above\"></nav>\n\
         <div id=\"tiles\"></div>\n<p id=\"details\" aria-live=\"polite\"></p>\n</div>\n\
         <noscript><p>The map needs a script; the table has its numbers.</p></noscript>\n",
    );
    html.raw("<script type=\"application/json\" id=\"place-data\">");
    html.raw(&data(&document.places));
    html.raw("</script>\n");
    let mut order: Vec<&PlaceFields> = document.places.iter().collect();
    order.sort_by_key(|place| std::cmp::Reverse(place.disk_bytes));
    html.raw("<details>\n<summary>The same as a table</summary>\n");
    let greatest = order.first().map_or(0, |place| place.disk_bytes);
    let rows = order.iter().take(MOST_ROWS).map(|place| {
        vec![
            Cell::text(&place.path),
            Cell::Bar { alone: place.exclusive_bytes, all: place.disk_bytes, of: greatest },
            Cell::Bytes(place.disk_bytes),
            Cell::Bytes(place.exclusive_bytes),
            Cell::Bytes(place.file_bytes),
            Cell::Count(place.files),
        ]
    });
    let heads = ["Place", "", "On disk", "Alone here", "Files refer to", "Files"];
    html.table("The places that hold most", &heads, rows);
    html.left_out(order.len(), MOST_ROWS, "places that hold less");
    html.raw("</details>\n");
    html.paragraph(
        "Small directories and files are together as \"others\" where they are. Where there \
         are many snapshots, the older ones are one rectangle each.",
    );
    html.end_section();
}

/// The places for the script, as short as they can be. No text in it ends the element.
fn data(places: &[PlaceFields]) -> String {
    let rows: Vec<serde_json::Value> = places
        .iter()
        .map(|place| {
            serde_json::json!([
                place.parent,
                place.kind,
                place.name,
                place.disk_bytes,
                place.exclusive_bytes,
                place.files,
                place.loose_files.disk_bytes,
                place.loose_files.exclusive_bytes,
                place.others.count,
                place.others.disk_bytes,
                place.others.exclusive_bytes,
            ])
        })
        .collect();
    serde_json::Value::from(rows).to_string().replace('<', "\\u003c")
}
