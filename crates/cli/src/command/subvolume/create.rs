//! `larder subvolume create`.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::mounted::ParentAndName;
use crate::command::Outcome;
use crate::extract::umask;
use crate::global::Global;
use crate::output::stdout;
use crate::source::{PathSource, Writing, new_inode};
use crate::target::parent_of;

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
            for path in &self.paths {
                let named = ParentAndName::of(path.as_ref())?;
                named.create().with_context(|| path.display().to_string())?;
                tell(global, &named)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        self.source
            .change(&self.paths[0], |writing| self.create_in_image(global, writing).map(|()| 0))
    }

    fn create_in_image(&self, global: &Global, writing: &Writing) -> anyhow::Result<()> {
        // A default ACL removes from what the umask left, and does not replace it.
        let root = new_inode(0o040_777 & !umask(), 0);
        for text in &self.paths {
            let path = writing.path(text)?;
            let name = Path::new(&path).file_name().with_context(|| {
                format!("{}: is the root directory; a subvolume needs a name", text.display())
            })?;
            let directory = writing.start.open_directory(parent_of(Path::new(&path)))?;
            let made = directory.create_child_subvolume(name, &root);
            made.with_context(|| text.display().to_string())?;
            tell(global, &text.display())?;
        }
        Ok(())
    }
}

fn tell(global: &Global, made: &dyn fmt::Display) -> io::Result<()> {
    if global.is_quiet() {
        return Ok(());
    }
    writeln!(stdout(), "Create subvolume '{made}'")
}
