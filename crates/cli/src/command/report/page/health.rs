//! Errors of devices, and the findings of a check.

use larder_check::{AffectedFile, Finding, KindFindings};

use super::html::{Cell, Html, MOST_ROWS, count};
use crate::command::report::document::{Device, Document, Errors};

pub fn section(html: &mut Html, document: &Document) {
    html.begin_section("health", "Health");
    let rows = document.devices.iter().map(device);
    let heads = ["Device", "State", "Writes", "Reads", "Flushes", "Corruptions", "Generations"];
    html.table("Errors that devices have had since their counts were reset", &heads, rows);
    match &document.check {
        None => html.paragraph(
            "The file system was not checked: --check reads all its trees for that, and \
             --check-data its data too.",
        ),
        Some(report) if report.is_clean() => {
            let data = match report.statistics.verified_bytes {
                0 => "Its data was not read.".into(),
                bytes => format!("{} bytes of data have the right checksums.", count(bytes)),
            };
            html.paragraph(&format!("A check of all trees found nothing. {data}"));
        }
        Some(report) => findings(html, &report.kinds),
    }
    for skipped in document.check.iter().flat_map(|report| &report.skipped) {
        html.paragraph(&format!("Not checked: {skipped}."));
    }
    html.end_section();
}

fn device(device: &Device) -> Vec<Cell> {
    let name = device.name.as_deref().unwrap_or("missing");
    let sum = device.errors.as_ref().map_or(0, Errors::sum);
    let state = match device {
        Device { name: None, .. } => "missing",
        Device { is_stale: true, .. } => "missed commits",
        Device { errors: None, .. } => "counts unknown",
        _ if sum > 0 => "has had errors",
        _ => "no errors",
    };
    let mut cells = vec![Cell::text(&format!("{} ({name})", device.id)), Cell::text(state)];
    if let Some(errors) = &device.errors {
        let counts =
            [errors.writes, errors.reads, errors.flushes, errors.corruptions, errors.generations];
        cells.extend(counts.map(Cell::Count));
    }
    cells
}

/// A row for each file of each finding.
fn findings(html: &mut Html, kinds: &[KindFindings]) {
    let mut rows = Vec::new();
    let mut all = 0;
    for group in kinds {
        all += group.count as usize;
        for finding in &group.findings {
            if finding.files.is_empty() {
                rows.push(row(group, finding, "no single file"));
            }
            rows.extend(finding.files.iter().map(|file| row(group, finding, &name(file))));
        }
    }
    let shown = rows.len();
    html.paragraph(&format!(
        "A check found {}.",
        match all {
            1 => "one thing that is wrong".into(),
            _ => format!("{} things that are wrong", count(all as u64)),
        }
    ));
    rows.truncate(MOST_ROWS);
    html.table("Findings by file", &["File", "Severity", "Finding", "Where"], rows);
    let kept: usize = kinds.iter().map(|group| group.findings.len()).sum();
    if shown > MOST_ROWS || kept < all {
        html.paragraph("This is a part of them; larder check lists more.");
    }
}

fn row(group: &KindFindings, finding: &Finding, file: &str) -> Vec<Cell> {
    vec![
        Cell::text(file),
        Cell::text(&group.severity.to_string()),
        Cell::text(&format!("{}: {}", group.kind, finding.evidence)),
        Cell::text(&finding.location.to_string()),
    ]
}

fn name(file: &AffectedFile) -> String {
    let AffectedFile { subvolume, inode, path } = file;
    match (path, inode) {
        (Some(path), _) => path.clone(),
        (None, Some(inode)) => format!("inode {inode} of subvolume {subvolume}"),
        (None, None) => format!("subvolume {subvolume}"),
    }
}
