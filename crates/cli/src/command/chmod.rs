//! `larder chmod`.

use std::ffi::OsString;

use anyhow::Context;
use clap::Args;
use larder::{FileType, Inode, SetAttributes};

use super::Outcome;
use crate::extract::umask;
use crate::interrupt;
use crate::mode_change::ModeChange;
use crate::source::{PathSource, Writing};
use crate::tree::{Each, walk};

/// Change permissions in a file system that is not mounted
///
/// An access ACL follows. Symbolic links have no permissions: one that is named is followed, those
/// below a directory are left alone.
///
/// Examples:
///   larder chmod 600 disk.img:/etc/shadow
///   larder chmod -R u=rwX,go=rX disk.img:/srv
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
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

impl Chmod {
    pub fn run(self) -> Outcome {
        self.source.change(&self.paths[0], |writing| self.apply(writing))
    }

    fn apply(&self, writing: &Writing) -> anyhow::Result<usize> {
        interrupt::watch()?;
        let umask = umask();
        let mut failures = 0;
        for text in &self.paths {
            let inode = writing.start.resolve(writing.path(text)?)?;
            if self.recursive {
                let change = |node: &crate::tree::Node<'_>| self.change(node.inode, umask);
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
