//! `larder subvolume show`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::{Overview, QuotaGroup, SubvolumeInfo, Timestamp, Uuid};
use serde::Serialize;

use super::found::subvolume_in;
use super::object::{Object, time, uuid_or_dash};
use crate::global::Global;
use crate::operand::parse_number;
use crate::operand::parse_uuid;
use crate::outcome::Outcome;
use crate::output::{stdout, write_name};
use crate::print::{Name, local_time_with_zone, write_json};
use crate::source::Source;
use crate::units::Units;

/// Show all about a subvolume
///
/// Examples:
///   larder subvolume show disk.img:/snapshots/monday
///   larder subvolume show ~/mnt/snapshots/monday
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Show {
    /// Show the subvolume with this id, whatever its path
    #[arg(short, long, value_name = "ID", conflicts_with = "uuid", value_parser = parse_number)]
    rootid: Option<u64>,
    /// Show the subvolume with this uuid, whatever its path
    #[arg(short, long, value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    #[command(flatten)]
    units: Units,
    #[command(flatten)]
    source: Source,
    /// The subvolume, in an image by its path from the top level, or in a file system that is
    /// mounted
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    target: OsString,
}

impl Show {
    pub fn run(self, global: &Global) -> Outcome {
        let (filesystem, id) = self.find()?;
        let filesystem = &*filesystem;
        let info = filesystem.subvolume_info(id)?;
        let path = filesystem.subvolume_path(info.id)?;
        let snapshots = snapshots_of(filesystem, &info)?;
        let quota_group = filesystem.quota_group(info.id)?;
        let mut out = stdout();
        if global.is_json() {
            let shown = Shown::new(&info, &path, &snapshots, quota_group);
            write_json(&mut out, "subvolume-show", &shown)?;
            return Ok(ExitCode::SUCCESS);
        }
        let is_top = path.as_os_str().is_empty();
        write_name(&mut out, if is_top { Path::new("/") } else { &path })?;
        writeln!(out)?;
        describe(&mut out, &info)?;
        writeln!(out, "\tSnapshot(s):")?;
        for path in snapshots {
            out.write_all(b"\t\t\t\t")?;
            write_name(&mut out, path)?;
            writeln!(out)?;
        }
        quota_group.map_or(Ok(()), |group| self.quota(&mut out, info.id, &group))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The file system, and the id of the subvolume that the operand names.
    fn find(&self) -> anyhow::Result<(Box<dyn Overview>, u64)> {
        if let Some(id) = self.rootid {
            let (filesystem, _) = self.source.overview_at(&self.target)?;
            return Ok((filesystem, id));
        }
        if let Some(uuid) = self.uuid {
            let (filesystem, _) = self.source.overview_at(&self.target)?;
            let id = with_uuid(&*filesystem, uuid)?;
            let id = id.with_context(|| {
                format!("{}: has no subvolume with the uuid {uuid}", self.target.display())
            })?;
            return Ok((filesystem, id));
        }
        subvolume_in(&self.source, &self.target)
    }

    fn quota(&self, out: &mut impl Write, id: u64, group: &QuotaGroup) -> io::Result<()> {
        let limit = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| self.units.show(bytes));
        writeln!(out, "\tQuota group:\t\t0/{id}")?;
        writeln!(out, "\t  Limit referenced:\t{}", limit(group.max_referenced_bytes))?;
        writeln!(out, "\t  Limit exclusive:\t{}", limit(group.max_exclusive_bytes))?;
        writeln!(out, "\t  Usage referenced:\t{}", self.units.show(group.referenced_bytes))?;
        writeln!(out, "\t  Usage exclusive:\t{}", self.units.show(group.exclusive_bytes))
    }
}

/// The paths of its snapshots.
fn snapshots_of(filesystem: &dyn Overview, info: &SubvolumeInfo) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for snapshot in filesystem.subvolumes()? {
        let snapshot = snapshot?;
        let is_of_this = snapshot.parent_uuid == info.uuid && !info.uuid.is_nil();
        if is_of_this && !snapshot.is_being_deleted {
            paths.push(filesystem.subvolume_path(snapshot.id)?);
        }
    }
    Ok(paths)
}

/// Id of the subvolume with this uuid.
fn with_uuid(filesystem: &dyn Overview, uuid: Uuid) -> anyhow::Result<Option<u64>> {
    for info in filesystem.subvolumes()? {
        let info = info?;
        if info.uuid == uuid && !info.is_being_deleted {
            return Ok(Some(info.id));
        }
    }
    Ok(None)
}

fn name_of(info: &SubvolumeInfo) -> &[u8] {
    info.name.as_ref().map_or(b"<FS_TREE>", |name| &name.name)
}

fn describe(out: &mut impl Write, info: &SubvolumeInfo) -> io::Result<()> {
    let parent = info.name.as_ref().map_or(0, |name| name.parent);
    write!(out, "\tName: \t\t\t")?;
    write_name(out, OsStr::from_bytes(name_of(info)))?;
    writeln!(out)?;
    writeln!(out, "\tUUID: \t\t\t{}", uuid_or_dash(info.uuid))?;
    writeln!(out, "\tParent UUID: \t\t{}", uuid_or_dash(info.parent_uuid))?;
    writeln!(out, "\tReceived UUID: \t\t{}", uuid_or_dash(info.received_uuid))?;
    writeln!(out, "\tCreation time: \t\t{}", time_or_dash(info.creation_time))?;
    writeln!(out, "\tSubvolume ID: \t\t{}", info.id)?;
    writeln!(out, "\tGeneration: \t\t{}", info.generation)?;
    writeln!(out, "\tGen at creation: \t{}", info.creation_generation)?;
    writeln!(out, "\tParent ID: \t\t{parent}")?;
    writeln!(out, "\tTop level ID: \t\t{parent}")?;
    writeln!(out, "\tFlags: \t\t\t{}", if info.is_read_only { "readonly" } else { "-" })?;
    writeln!(out, "\tSend transid: \t\t{}", info.send_generation)?;
    writeln!(out, "\tSend time: \t\t{}", time_or_dash(info.send_time))?;
    writeln!(out, "\tReceive transid: \t{}", info.receive_generation)?;
    writeln!(out, "\tReceive time: \t\t{}", time_or_dash(info.receive_time))
}

fn time_or_dash(time: Timestamp) -> String {
    if time.seconds == 0 { "-".into() } else { local_time_with_zone(time.seconds) }
}

/// A subvolume as JSON.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    object: Object,
    name: Name,
    flags: Vec<&'static str>,
    stransid: u64,
    stime: Option<String>,
    rtransid: u64,
    rtime: Option<String>,
    snapshots: Vec<Name>,
    qgroup: Option<Qgroup>,
}

#[derive(Serialize)]
struct Qgroup {
    qgroupid: String,
    limit: Sizes<Option<u64>>,
    usage: Sizes<u64>,
}

/// Bytes of a quota group.
#[derive(Serialize)]
struct Sizes<S> {
    referenced: S,
    exclusive: S,
}

impl Shown {
    fn new(
        info: &SubvolumeInfo,
        path: &Path,
        snapshots: &[PathBuf],
        quota_group: Option<QuotaGroup>,
    ) -> Self {
        Self {
            object: Object::new(info, path),
            name: Name::of_bytes(name_of(info)),
            flags: if info.is_read_only { vec!["readonly"] } else { vec![] },
            stransid: info.send_generation,
            stime: time(info.send_time),
            rtransid: info.receive_generation,
            rtime: time(info.receive_time),
            snapshots: snapshots.iter().map(Name::from).collect(),
            qgroup: quota_group.map(|group| Qgroup {
                qgroupid: format!("0/{}", info.id),
                limit: Sizes {
                    referenced: group.max_referenced_bytes,
                    exclusive: group.max_exclusive_bytes,
                },
                usage: Sizes {
                    referenced: group.referenced_bytes,
                    exclusive: group.exclusive_bytes,
                },
            }),
        }
    }
}
