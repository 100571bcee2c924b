//! `larder subvolume show`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::{Overview, QuotaGroup, SubvolumeInfo, Timestamp, Uuid};

use super::{subvolume_in, uuid_or_dash};
use crate::command::Outcome;
use crate::operand::parse_number;
use crate::operand::parse_uuid;
use crate::output::stdout;
use crate::print::local_time_with_zone;
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
    pub fn run(self) -> Outcome {
        let (filesystem, id) = self.find()?;
        let filesystem = &*filesystem;
        let info = filesystem.subvolume_info(id)?;
        let path = filesystem.subvolume_path(info.id)?;
        let mut out = stdout();
        out.write_all(if path.as_os_str().is_empty() {
            b"/"
        } else {
            path.as_os_str().as_bytes()
        })?;
        writeln!(out)?;
        describe(&mut out, &info)?;
        writeln!(out, "\tSnapshot(s):")?;
        for snapshot in filesystem.subvolumes()? {
            let snapshot = snapshot?;
            let is_of_this = snapshot.parent_uuid == info.uuid && !info.uuid.is_nil();
            if is_of_this && !snapshot.is_being_deleted {
                let path = filesystem.subvolume_path(snapshot.id)?;
                out.write_all(b"\t\t\t\t")?;
                out.write_all(path.as_os_str().as_bytes())?;
                writeln!(out)?;
            }
        }
        self.quota(&mut out, filesystem, info.id)?;
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

    fn quota(
        &self,
        out: &mut impl Write,
        filesystem: &dyn Overview,
        id: u64,
    ) -> anyhow::Result<()> {
        let Some(group) = filesystem.quota_group(id)? else { return Ok(()) };
        let limit = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| self.units.show(bytes));
        let QuotaGroup { referenced_bytes, exclusive_bytes, .. } = group;
        writeln!(out, "\tQuota group:\t\t0/{id}")?;
        writeln!(out, "\t  Limit referenced:\t{}", limit(group.max_referenced_bytes))?;
        writeln!(out, "\t  Limit exclusive:\t{}", limit(group.max_exclusive_bytes))?;
        writeln!(out, "\t  Usage referenced:\t{}", self.units.show(referenced_bytes))?;
        writeln!(out, "\t  Usage exclusive:\t{}", self.units.show(exclusive_bytes))?;
        Ok(())
    }
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

fn describe(out: &mut impl Write, info: &SubvolumeInfo) -> io::Result<()> {
    let parent = info.name.as_ref().map_or(0, |name| name.parent);
    let name = info.name.as_ref().map_or(&b"<FS_TREE>"[..], |name| &name.name);
    writeln!(out, "\tName: \t\t\t{}", OsStr::from_bytes(name).display())?;
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
