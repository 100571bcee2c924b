//! `larder subvolume get-default`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::object::Object;
use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::{stdout, write_name};
use crate::print::write_json;
use crate::source::Source;

/// Show the subvolume that a mount shows by default
///
/// Examples:
///   larder subvolume get-default disk.img
///   larder subvolume get-default ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct GetDefault {
    #[command(flatten)]
    source: Source,
    /// The image file or block device, or a directory of a file system that is mounted
    #[arg(value_name = "IMAGE[:/PATH] or PATH")]
    pub(super) image: PathBuf,
}

impl GetDefault {
    pub fn run(self, global: &Global) -> Outcome {
        let filesystem = self.source.overview(self.image.as_os_str())?;
        let info = filesystem.subvolume_info(filesystem.default_subvolume_id()?)?;
        if global.is_json() {
            let object = Object::new(&info, &filesystem.subvolume_path(info.id)?);
            write_json(&mut stdout(), "subvolume-get-default", &object)?;
            return Ok(ExitCode::SUCCESS);
        }
        match &info.name {
            None => writeln!(stdout(), "ID {} (FS_TREE)", info.id)?,
            Some(name) => {
                let path = filesystem.subvolume_path(info.id)?;
                let (id, generation, parent) = (info.id, info.generation, name.parent);
                let mut out = stdout();
                write!(out, "ID {id} gen {generation} top level {parent} path ")?;
                write_name(&mut out, path)?;
                writeln!(out)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
