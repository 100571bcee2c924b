//! `larder chmod`.

use std::ffi::OsString;

use anyhow::Context;
use clap::Args;
use larder::commands::Command;
use larder::{FileType, Inode, SetAttributes};

use crate::interrupt;
use crate::mode_change::ModeChange;
use crate::on_mount::{self, Present};
use crate::outcome::{Outcome, exit_code};
use crate::source::{PathSource, Writing};
use crate::tree::{Each, walk};
use crate::umask::umask;

/// Change permissions in a file system that is not mounted, or on a mount of larder
///
/// On a mount the server changes them, faster than a program can. Only root and the user who
/// mounted it may ask for that; others use the system's chmod.
///
/// An access ACL follows. Symbolic links have no permissions: one that is named is followed, those
/// below a directory are left alone.
///
/// Examples:
///   larder chmod 600 disk.img:/etc/shadow
///   larder chmod -R u=rwX,go=rX disk.img:/srv
///   larder chmod -R go-w /mnt/srv
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Chmod {
    /// Directories with everything in them
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    source: PathSource,
    /// An octal number, or changes as of chmod: u+x,go-w
    #[arg(value_parser = ModeChange::parse, allow_hyphen_values = true)]
    mode: ModeChange,
    /// What to change
    #[arg(required = true, value_name = "IMAGE:/PATH|PATH")]
    paths: Vec<OsString>,
}

impl Chmod {
    pub fn run(self) -> Outcome {
        if self.source.mounted_path(&self.paths[0])?.is_some() {
            return self.apply_on_mount();
        }
        self.source.change(&self.paths[0], |writing| self.apply(writing))
    }

    fn apply_on_mount(&self) -> Outcome {
        interrupt::watch()?;
        let umask = umask();
        let new = |present: Present| {
            let file_type = FileType::from_mode(present.mode);
            if file_type == Some(FileType::Symlink) {
                return None;
            }
            let is_directory = file_type == Some(FileType::Directory);
            Some(u64::from(self.mode.apply(present.mode, is_directory, umask) & 0o7777))
        };
        let paths = on_mount::all_resolved(&self.paths, true)?;
        let failures = on_mount::with_each(paths, |changes, path| {
            on_mount::change_attributes(changes, path, self.recursive, |path, present| {
                Some(Command::Chmod { path, mode: new(present)? })
            })
        })?;
        Ok(exit_code(failures))
    }

    fn apply(&self, writing: &Writing) -> anyhow::Result<usize> {
        interrupt::watch()?;
        let umask = umask();
        let mut failures = 0;
        for text in &self.paths {
            let inode = writing.start.resolve(writing.path(text)?)?;
            if self.recursive {
                let change = |node: &crate::tree::Visited<'_>| self.change(node.inode, umask);
                failures += walk(&inode, &mut Each::new(change))?;
            } else {
                self.change(&inode, umask).with_context(|| text.display().to_string())?;
            }
        }
        Ok(failures)
    }

    fn change(&self, inode: &Inode, umask: u32) -> anyhow::Result<()> {
        if inode.file_type() == FileType::Symlink {
            return Ok(());
        }
        let mode = inode.metadata().mode;
        let mode = self.mode.apply(mode, inode.file_type() == FileType::Directory, umask);
        let permissions = Some(mode & 0o7777);
        Ok(inode.set_attributes(&SetAttributes { permissions, ..Default::default() })?)
    }
}
