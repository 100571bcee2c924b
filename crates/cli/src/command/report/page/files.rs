//! In how many pieces files are.

use super::html::{Cell, Html, count};
use crate::command::report::document::Fragmentation;

pub fn section(html: &mut Html, fragmentation: &Fragmentation) {
    html.begin_section("fragmentation", "Fragmentation");
    let Fragmentation { files, extents, fragments, .. } = fragmentation;
    html.paragraph(&format!(
        "{} files with {} extents, in {} fragments: parts of a file that are in one piece. \
         Snapshots that are one rectangle on the map are left out.",
        count(*files),
        count(*extents),
        count(*fragments)
    ));
    let most = fragmentation.histogram.iter().map(|bucket| bucket.files).max().unwrap_or(0);
    let rows = fragmentation.histogram.iter().filter(|bucket| bucket.files > 0).map(|bucket| {
        let (from, to) = (bucket.from_fragments, bucket.from_fragments.saturating_mul(2) - 1);
        let range =
            if from == to { count(from) } else { format!("{}–{}", count(from), count(to)) };
        vec![
            Cell::Plain(range),
            Cell::Bar { alone: bucket.files, all: bucket.files, of: most },
            Cell::Count(bucket.files),
            Cell::Bytes(bucket.file_bytes),
        ]
    });
    html.table("Files by fragments", &["Fragments", "", "Files", "Bytes"], rows);
    html.raw("<details>\n<summary>The most fragmented files</summary>\n");
    let rows = fragmentation.most.iter().map(|file| {
        let nameless = || format!("inode {} of subvolume {}", file.inode, file.subvolume);
        vec![
            Cell::text(&file.path.clone().unwrap_or_else(nameless)),
            Cell::Count(file.fragments),
            Cell::Count(file.extents),
            Cell::Bytes(file.file_bytes),
        ]
    });
    html.table("Files with most fragments", &["File", "Fragments", "Extents", "Bytes"], rows);
    html.raw("</details>\n");
    html.end_section();
}
