//! `larder rescue find-roots`.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larder_device::Access;
use larder_rescue::{FoundStates, Origin, Progress as Searched, State, find_states};
use parking_lot::Mutex;
use serde::Serialize;

use crate::command::inspect::title;
use crate::devices;
use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::place::{PlaceOptions, located};
use crate::print::{Cell, JsonList, local_time, local_time_with_zone, write_table};
use crate::progress::Progress;
use crate::source::warn_if_in_use;

/// List the earlier states of a file system that its devices still hold
///
/// Each commit leaves the blocks of the one before until their space is used again. All tree blocks
/// are read, on all devices at once: where metadata lies, or everything if the chunk tree cannot be
/// read. Devices may be missing.
///
/// For each state: its generation; the address of its root tree; the last change of a file in it;
/// where it is named: by the superblock as the last commit, by one of its backup roots, or nowhere;
/// how many subvolumes it has; and whether all its tree blocks are there. If all that are missing
/// belong to trees that reading files does not need, it says so. Data may have been written over
/// since: its checksums tell.
///
/// IMAGE@GENERATION in place of IMAGE is the file system in that state, in every command that reads,
/// and to mount with -o ro.
///
/// Examples:
///   larder rescue find-roots disk.img
///   larder cp disk.img@4711:/report.odt .
///   larder --format json rescue find-roots disk1.img disk2.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct FindRoots {
    #[command(flatten)]
    place: PlaceOptions,
    /// The image files or block devices of one file system
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    generation: u64,
    root: u64,
    level: u8,
    last_change: Option<String>,
    named_by: Option<&'static str>,
    subvolumes: usize,
    complete: bool,
    files_complete: bool,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct Missing {
    tree: u64,
    blocks: u64,
}

impl FindRoots {
    pub fn run(self, global: &Global) -> Outcome {
        let place = self.place.place();
        let paths = devices::all(&self.devices, place)?;
        warn_if_in_use(&located(&paths, place));
        let opened = paths.iter().map(|path| larder_image::open(path, Access::ReadOnly, place));
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let progress = Mutex::new(Progress::of_bytes());
        let found = find_states(opened, &|now: Searched| {
            if !global.is_quiet() {
                progress.lock().set_of(now.done_bytes, now.total_bytes);
            }
            ControlFlow::Continue(())
        })?;
        drop(progress);
        warn(&found);
        let mut out = stdout();
        if global.is_json() {
            let mut list = JsonList::new("rescue-find-roots");
            for state in &found.states {
                list.push(&mut out, &Object::from(state))?;
            }
            list.end_with(&mut out, &[])?;
        } else {
            write_table(&mut out, &table(&found.states))?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn warn(found: &FoundStates) {
    if let Some(reason) = &found.without_chunks {
        eprintln!("WARNING: {reason}: everything on the devices was read");
    }
    for range in &found.unreadable {
        let (device, offset, bytes) = (&range.device, range.offset, range.len_bytes);
        eprintln!("WARNING: {device}: {bytes} bytes at {offset} cannot be read");
    }
}

impl From<&State> for Object {
    fn from(state: &State) -> Self {
        Self {
            generation: state.generation,
            root: state.root.0,
            level: state.level,
            last_change: state.time.map(|time| local_time_with_zone(time.seconds())),
            named_by: named_by(state),
            subvolumes: state.subvolumes,
            complete: state.is_complete(),
            files_complete: state.has_all_files(),
            missing: state
                .missing
                .iter()
                .map(|(tree, blocks)| Missing { tree: *tree, blocks: *blocks })
                .collect(),
        }
    }
}

fn named_by(state: &State) -> Option<&'static str> {
    match state.origin {
        Origin::Superblock => Some("superblock"),
        Origin::Backup => Some("backup"),
        Origin::Device => None,
    }
}

fn table(states: &[State]) -> Vec<Vec<Cell>> {
    let titles = ["Generation", "Root", "Last change", "Named by", "Subvolumes", "Tree blocks"];
    let header = titles.map(|title| Cell::Left(title.to_owned()));
    let rules = titles.map(|_| Cell::Rule);
    let rows = states.iter().map(|state| {
        let time = state.time.map_or_else(|| "-".to_owned(), |time| local_time(time.seconds()));
        vec![
            Cell::Right(state.generation.to_string()),
            Cell::Right(state.root.0.to_string()),
            Cell::Left(time),
            Cell::Left(named_by(state).unwrap_or("-").to_owned()),
            Cell::Right(state.subvolumes.to_string()),
            Cell::Left(completeness(state)),
        ]
    });
    [header.into(), rules.into()].into_iter().chain(rows).collect()
}

/// Trees that are named; the others are only counted.
const MOST_NAMED: usize = 3;

fn completeness(state: &State) -> String {
    if state.is_complete() {
        return "complete".to_owned();
    }
    let total: u64 = state.missing.values().sum();
    let named = state.missing.iter().take(MOST_NAMED).map(|(tree, count)| match title(*tree) {
        "file" => format!("{count} of subvolume {tree}"),
        title => format!("{count} of the {title} tree"),
    });
    let mut named: Vec<String> = named.collect();
    let others = state.missing.len().saturating_sub(MOST_NAMED);
    if others > 0 {
        named.push(format!("the others of {others} more trees"));
    }
    let start = if state.has_all_files() { "files complete; " } else { "" };
    format!("{start}{total} missing: {}", named.join(", "))
}
