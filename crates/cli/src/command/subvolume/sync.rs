//! `larder subvolume sync`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use larder::{MountedFilesystem, Overview};

use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::stdout;

/// Wait until deleted subvolumes are gone from a mounted file system
///
/// Deleting only removes the name. What is in a subvolume goes away after a commit, and its space
/// is free then. Without ids this waits for all subvolumes that are deleted when it starts; an id
/// that no subvolume has is gone, and one that is not deleted is waited for too. In an image that
/// is not mounted nothing goes on.
///
/// Examples:
///   larder subvolume sync ~/mnt
///   larder subvolume sync ~/mnt 257 258
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Sync {
    /// Seconds between looks at the file system
    #[arg(short, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// A directory of the file system
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Ids of subvolumes
    #[arg(value_name = "ID", value_parser = parse_id)]
    ids: Vec<u64>,
}

/// The least id of a subvolume below the top level.
const FIRST_ID: u64 = 256;

fn parse_id(text: &str) -> Result<u64, String> {
    let id = parse_number(text)?;
    if id < FIRST_ID { Err("ids of subvolumes start at 256".into()) } else { Ok(id) }
}

impl Sync {
    pub fn run(self) -> Outcome {
        let named = || self.path.display().to_string();
        let filesystem = MountedFilesystem::open(&self.path).with_context(named)?;
        let present = |is_wanted: &dyn Fn(bool) -> bool| -> larder::Result<BTreeSet<u64>> {
            let mut ids = BTreeSet::new();
            for info in filesystem.subvolumes()? {
                let info = info?;
                if is_wanted(info.is_being_deleted) {
                    ids.insert(info.id);
                }
            }
            Ok(ids)
        };
        let mut waiting = match &self.ids[..] {
            [] => present(&|is_being_deleted| is_being_deleted)?.into_iter().collect(),
            ids => ids.to_vec(),
        };
        let (count, mut gone) = (waiting.len(), 0);
        let mut out = stdout();
        match count {
            0 => {}
            1 => writeln!(out, "Waiting for 1 subvolume")?,
            _ => writeln!(out, "Waiting for {count} subvolumes")?,
        }
        while !waiting.is_empty() {
            let still = present(&|_| true)?;
            for id in waiting.extract_if(.., |id| !still.contains(id)) {
                gone += 1;
                writeln!(out, "Subvolume id {id} is gone ({gone}/{count})")?;
            }
            out.flush()?;
            if !waiting.is_empty() {
                thread::sleep(Duration::from_secs(self.seconds));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
