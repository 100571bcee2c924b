//! `larder chown`.

use std::ffi::OsString;

use anyhow::{Context, bail};
use clap::Args;
use larder::commands::Command;
use larder::{Inode, SetAttributes};

use super::{Outcome, exit_code};
use crate::interrupt;
use crate::on_mount::{self, OnMount, Present};
use crate::source::{PathSource, Writing};
use crate::tree::{Each, Node, walk};

/// Change owners and groups in a file system that is not mounted, or on a mount of larder
///
/// On a mount the server changes them, faster than a program can. Only root and the user who
/// mounted it may ask for that; others use the system's chown.
///
/// They are numbers: only the system in the image knows their names. Files lose set-user-ID,
/// set-group-ID and capabilities by that, as with the kernel.
///
/// Examples:
///   larder chown 1000:1000 disk.img:/home/ann/notes
///   larder chown -R :100 disk.img:/srv
///   larder chown -R 1000:1000 /mnt/home/ann
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Chown {
    /// Directories with everything in them; symbolic links are not followed
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links and not what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    source: PathSource,
    /// Numbers of owner and group, of which one may be left out
    #[arg(value_name = "OWNER:GROUP", value_parser = Owners::parse)]
    owners: Owners,
    /// What to change
    #[arg(required = true, value_name = "IMAGE:/PATH|PATH")]
    paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Owners {
    uid: Option<u32>,
    gid: Option<u32>,
}

/// Stands for no user and no group.
const NO_ID: u32 = u32::MAX;

impl Owners {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (owner, group) = text.split_once(':').unwrap_or((text, ""));
        let number = |text: &str| match text {
            "" => Ok(None),
            _ => match text.parse() {
                Ok(id) if id != NO_ID => Ok(Some(id)),
                _ => bail!("'{text}' is not an id; ids are numbers from 0 to {}", NO_ID - 1),
            },
        };
        Ok(Self { uid: number(owner)?, gid: number(group)? })
    }
}

impl Chown {
    pub fn run(self) -> Outcome {
        if self.source.mounted_path(&self.paths[0])?.is_some() {
            return self.apply_on_mount();
        }
        self.source.change(&self.paths[0], |writing| self.apply(writing))
    }

    fn apply_on_mount(&self) -> Outcome {
        interrupt::watch()?;
        let Owners { uid, gid } = self.owners;
        let change = |changes: &mut OnMount, path: &[u8], present: Present| {
            let (uid, gid) = (uid.unwrap_or(present.uid), gid.unwrap_or(present.gid));
            changes.make(&Command::Chown { path, uid: uid.into(), gid: gid.into() })
        };
        let paths = on_mount::all_resolved(&self.paths, !self.recursive && !self.no_dereference)?;
        let failures = on_mount::with_each(paths, |changes, path| {
            on_mount::change_attributes(changes, path, self.recursive, change)
        })?;
        Ok(exit_code(failures))
    }

    fn apply(&self, writing: &Writing) -> anyhow::Result<usize> {
        interrupt::watch()?;
        let mut failures = 0;
        for text in &self.paths {
            let path = writing.path(text)?;
            let keeps_links = self.recursive || self.no_dereference;
            let found =
                if keeps_links { writing.start.lookup(path) } else { writing.start.resolve(path) };
            let inode = found?;
            if self.recursive {
                let change = |node: &Node<'_>| self.change(node.inode);
                failures += walk(&inode, &mut Each::new(change))?;
            } else {
                self.change(&inode).with_context(|| text.display().to_string())?;
            }
        }
        Ok(failures)
    }

    fn change(&self, inode: &Inode) -> anyhow::Result<()> {
        let Owners { uid, gid } = self.owners;
        Ok(inode.set_attributes(&SetAttributes { uid, gid, ..Default::default() })?)
    }
}
