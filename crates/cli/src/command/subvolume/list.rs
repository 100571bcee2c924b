//! `larder subvolume list`.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use larder::{Overview, SubvolumeInfo};

use super::object::{Object, uuid_or_dash};
use crate::global::Global;
use crate::message::message;
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::{stdout, write_name};
use crate::print::{local_time, write_json};
use crate::source::Source;

/// List subvolumes and snapshots
///
/// Paths of subvolumes that lie in the one at the path start there, unless -o or -a is given;
/// others start at the top level. As JSON, everything that an option shows is there without it.
///
/// Examples:
///   larder subvolume list disk.img
///   larder subvolume list -s --sort=-gen disk.img
///   larder subvolume list ~/mnt
///   larder --format json subvolume list ~/mnt | jq '."subvolume-list"[].path'
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct List {
    /// Only those directly below the subvolume at the path
    #[arg(short = 'o')]
    below: bool,
    /// All, with <FS_TREE>/ before the paths of those not directly below the subvolume at the path
    #[arg(short = 'a')]
    all: bool,
    /// Show the id of the parent
    #[arg(short = 'p')]
    parent: bool,
    /// Show the generation at creation
    #[arg(short = 'c')]
    creation: bool,
    /// Show the generation (always shown)
    #[arg(short = 'g')]
    generation: bool,
    /// Show the uuid
    #[arg(short = 'u')]
    uuid: bool,
    /// Show the uuid of the subvolume that it is a snapshot of
    #[arg(short = 'q')]
    parent_uuid: bool,
    /// Show the uuid that it was received from
    #[arg(short = 'R')]
    received_uuid: bool,
    /// Only snapshots
    #[arg(short = 's')]
    snapshots: bool,
    /// Only read-only ones
    #[arg(short = 'r')]
    read_only: bool,
    /// Only deleted ones that are not cleaned up yet
    #[arg(short = 'd')]
    deleted: bool,
    /// As a table
    #[arg(short = 't')]
    table: bool,
    /// Only of this generation (+N: at least, -N: at most)
    #[arg(short = 'G', value_name = "[+|-]N", allow_hyphen_values = true)]
    by_generation: Option<Bound>,
    /// Only made in this generation (+N: at least, -N: at most)
    #[arg(short = 'C', value_name = "[+|-]N", allow_hyphen_values = true)]
    by_creation: Option<Bound>,
    /// Sort by gen, ogen, rootid or path, each with + (ascending) or - (descending) before it
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', allow_hyphen_values = true)]
    sort: Vec<SortField>,
    #[command(flatten)]
    source: Source,
    /// The image file or block device, and for -o and -a a subvolume in it; or a path in a file
    /// system that is mounted
    #[arg(value_name = "IMAGE[:/PATH] or PATH")]
    pub(super) target: OsString,
}

/// A subvolume and its path.
#[derive(Debug)]
struct Listed {
    info: SubvolumeInfo,
    path: PathBuf,
}

impl Listed {
    fn new(filesystem: &dyn Overview, info: SubvolumeInfo) -> anyhow::Result<Self> {
        let path = if info.is_being_deleted {
            PathBuf::from("DELETED")
        } else {
            filesystem.subvolume_path(info.id)?
        };
        Ok(Self { info, path })
    }

    fn parent(&self) -> u64 {
        self.info.name.as_ref().map_or(0, |name| name.parent)
    }
}

/// A generation, or a bound of it.
#[derive(Clone, Copy, Debug)]
struct Bound {
    value: u64,
    /// The required result of comparing a generation with the value; `None` for equality.
    side: Option<Ordering>,
}

impl Bound {
    fn admits(self, generation: u64) -> bool {
        let order = generation.cmp(&self.value);
        order == Ordering::Equal || self.side == Some(order)
    }
}

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (side, digits) = match text.as_bytes().first() {
            Some(b'+') => (Some(Ordering::Greater), &text[1..]),
            Some(b'-') => (Some(Ordering::Less), &text[1..]),
            _ => (None, text),
        };
        Ok(Self { value: parse_number(digits)?, side })
    }
}

/// A field to sort by.
#[derive(Clone, Copy, Debug)]
struct SortField {
    compare: fn(&Listed, &Listed) -> Ordering,
    descending: bool,
}

impl FromStr for SortField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let descending = text.starts_with('-');
        let compare: fn(&Listed, &Listed) -> Ordering = match text.trim_start_matches(['+', '-']) {
            "gen" => |a, b| a.info.generation.cmp(&b.info.generation),
            "ogen" => |a, b| a.info.creation_generation.cmp(&b.info.creation_generation),
            "rootid" => |a, b| a.info.id.cmp(&b.info.id),
            "path" => |a, b| a.path.as_os_str().cmp(b.path.as_os_str()),
            _ => return Err("expected gen, ogen, rootid or path".into()),
        };
        Ok(Self { compare, descending })
    }
}

/// A column of the output.
struct Column {
    /// The text before the value in a line.
    label: &'static str,
    /// The text above it in a table.
    title: &'static str,
    /// Minimum width of the value in a line.
    width: usize,
    value: fn(&Listed) -> String,
}

impl List {
    pub fn run(self, global: &Global) -> Outcome {
        let (filesystem, here) = self.source.overview_at(&self.target)?;
        let filesystem = &*filesystem;
        let mut listed = Vec::new();
        let mut code = ExitCode::SUCCESS;
        for info in filesystem.subvolumes()? {
            match info.map_err(Into::into).and_then(|info| Listed::new(filesystem, info)) {
                Ok(subvolume) if self.wants(&subvolume, here) => listed.push(subvolume),
                Ok(_) => {}
                Err(error) => {
                    eprintln!("ERROR: {}", message(&error));
                    code = ExitCode::FAILURE;
                }
            }
        }
        for field in self.sort.iter().rev() {
            listed.sort_by(|a, b| {
                let order = (field.compare)(a, b);
                if field.descending { order.reverse() } else { order }
            });
        }
        if self.all {
            mark_those_outside(&mut listed, here);
        } else if !self.below && here != TOP_LEVEL {
            start_at(&mut listed, &filesystem.subvolume_path(here)?);
        }
        if global.is_json() {
            let objects: Vec<_> =
                listed.iter().map(|Listed { info, path }| Object::new(info, path)).collect();
            write_json(&mut stdout(), "subvolume-list", &objects)?;
        } else {
            self.write(&listed)?;
        }
        Ok(code)
    }

    fn wants(&self, subvolume: &Listed, here: u64) -> bool {
        let info = &subvolume.info;
        let is_top = info.id == TOP_LEVEL;
        !is_top
            && info.is_being_deleted == self.deleted
            && (!self.below || subvolume.parent() == here)
            && (!self.snapshots || info.is_snapshot)
            && (!self.read_only || info.is_read_only)
            && self.by_generation.is_none_or(|bound| bound.admits(info.generation))
            && self.by_creation.is_none_or(|bound| bound.admits(info.creation_generation))
    }

    fn columns(&self) -> Vec<Column> {
        let column = |label, title, value| Column { label, title, width: 0, value };
        let uuid = |label, value| Column { label, title: label, width: 36, value };
        let mut columns = vec![
            column("ID", "ID", |s| s.info.id.to_string()),
            column("gen", "gen", |s| s.info.generation.to_string()),
        ];
        if self.creation || self.snapshots || self.by_creation.is_some() {
            columns.push(column("cgen", "cgen", |s| s.info.creation_generation.to_string()));
        }
        if self.parent {
            columns.push(column("parent", "parent", |s| s.parent().to_string()));
        }
        columns.push(column(TOP_LEVEL_COLUMN, TOP_LEVEL_COLUMN, |s| s.parent().to_string()));
        if self.snapshots {
            columns.push(column("otime", "otime", |s| local_time(s.info.creation_time.seconds)));
        }
        if self.parent_uuid {
            columns.push(uuid("parent_uuid", |s| uuid_or_dash(s.info.parent_uuid)));
        }
        if self.received_uuid {
            columns.push(uuid("received_uuid", |s| uuid_or_dash(s.info.received_uuid)));
        }
        if self.uuid {
            columns.push(uuid("uuid", |s| uuid_or_dash(s.info.uuid)));
        }
        columns
    }

    fn write(&self, listed: &[Listed]) -> io::Result<()> {
        let mut out = io::BufWriter::new(stdout());
        let columns = self.columns();
        if self.table {
            let titles = columns.iter().map(|column| column.title).chain(["path"]);
            let titles: Vec<&str> = titles.collect();
            let rules: Vec<String> = titles.iter().map(|title| "-".repeat(title.len())).collect();
            writeln!(out, "{}\t\n{}\t", titles.join("\t"), rules.join("\t"))?;
        }
        for subvolume in listed {
            for Column { label, width, value, .. } in &columns {
                let value = value(subvolume);
                if self.table {
                    // As in btrfs-progs: this title is wider than a tab.
                    let more = if *label == TOP_LEVEL_COLUMN { "\t" } else { "" };
                    write!(out, "{value:<width$}\t{more}")?;
                } else {
                    write!(out, "{label} {value:<width$} ")?;
                }
            }
            if !self.table {
                out.write_all(b"path ")?;
            }
            write_name(&mut out, &subvolume.path)?;
            writeln!(out)?;
        }
        out.flush()
    }
}

/// Id of the top level, which no subvolume contains.
const TOP_LEVEL: u64 = 5;

const TOP_LEVEL_COLUMN: &str = "top level";

/// Makes paths below `start` begin there.
fn start_at(listed: &mut [Listed], start: &Path) {
    for subvolume in listed {
        if let Ok(path) = subvolume.path.strip_prefix(start)
            && !path.as_os_str().is_empty()
        {
            subvolume.path = path.to_owned();
        }
    }
}

/// Puts `<FS_TREE>/` before the paths of subvolumes that are not directly below the given one.
fn mark_those_outside(listed: &mut [Listed], here: u64) {
    for subvolume in listed.iter_mut().filter(|subvolume| subvolume.parent() != here) {
        subvolume.path = PathBuf::from("<FS_TREE>").join(&subvolume.path);
    }
}
