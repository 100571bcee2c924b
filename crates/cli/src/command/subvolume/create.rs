//! `larder subvolume create`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::Args;
use larder_copy::new_inode;

use super::mounted::ParentAndName;
use crate::global::Global;
use crate::message::message;
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout;
use crate::source::PathSource;
use crate::target::parent_of;
use crate::umask::umask;

/// Make empty subvolumes
///
/// Examples:
///   larder subvolume create disk.img:/home
///   larder subvolume create mnt/home
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Create {
    #[command(flatten)]
    source: PathSource,
    /// The subvolumes, in one image or in file systems that are mounted
    #[arg(required = true, value_name = "IMAGE:/PATH or PATH")]
    paths: Vec<OsString>,
}

impl Create {
    pub fn run(self, global: &Global) -> Outcome {
        if self.source.mounted_path(&self.paths[0])?.is_some() {
            let failures = self.each(global, |path| {
                let named = ParentAndName::of(path.as_ref())?;
                named.create().with_context(|| path.display().to_string())?;
                Ok(named.to_string())
            })?;
            return Ok(exit_code(failures));
        }
        // A default ACL removes from what the umask left, and does not replace it.
        let root = new_inode(0o040_777 & !umask(), 0);
        self.source.change(&self.paths[0], |writing| {
            self.each(global, |text| {
                let path = writing.path(text)?;
                let name = Path::new(&path).file_name().with_context(|| {
                    format!("{}: is the root directory; a subvolume needs a name", text.display())
                })?;
                let named = || text.display().to_string();
                let parent = parent_of(Path::new(&path));
                let directory = writing.start.open_directory(parent).with_context(named)?;
                directory.create_child_subvolume(name, &root).with_context(named)?;
                Ok(named())
            })
        })
    }

    /// Makes a subvolume at each path with `create`, which returns its name. Reports errors, and
    /// returns how many there were.
    fn each(
        &self,
        global: &Global,
        create: impl Fn(&OsStr) -> anyhow::Result<String>,
    ) -> anyhow::Result<usize> {
        let mut failures = 0;
        for path in &self.paths {
            match create(path) {
                Ok(made) => tell(global, &made)?,
                Err(error) => {
                    eprintln!("ERROR: {}", message(&error));
                    failures += 1;
                }
            }
        }
        Ok(failures)
    }
}

fn tell(global: &Global, made: &str) -> io::Result<()> {
    if global.is_quiet() {
        return Ok(());
    }
    writeln!(stdout(), "Create subvolume '{made}'")
}
