//! `larder mkdir`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use larder::{ErrorKind, SetAttributes};
use larder_copy::new_inode;

use crate::mode_change::ModeChange;
use crate::outcome::Outcome;
use crate::source::{PathSource, Writing};
use crate::umask::umask;

/// Make directories in a file system that is not mounted
///
/// Examples:
///   larder mkdir -p disk.img:/home/ann/notes
///   larder mkdir -m 1777 disk.img:/tmp
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Mkdir {
    /// Parents too where they are missing; a directory that is there is no error
    #[arg(short, long)]
    parents: bool,
    /// Permissions of the new directories, though not of parents: as of chmod. Unless given, those
    /// that the umask or a default ACL leaves
    #[arg(short, long, value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,
    #[command(flatten)]
    source: PathSource,
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

const DIRECTORY: u32 = 0o040_000;
const SET_IDS: u32 = 0o6000;
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o022;
/// Permissions before the umask, from which a change in the command line starts.
const PERMISSIONS: u32 = 0o777;
/// The owner always gets these permissions on parents, whatever the umask.
const OF_PARENTS: u32 = 0o300;

impl Mkdir {
    pub fn run(self) -> Outcome {
        self.source.change(&self.paths[0], |writing| self.make(writing).map(|()| 0))
    }

    fn make(&self, writing: &Writing) -> anyhow::Result<()> {
        let umask = umask();
        let wanted = self.mode.as_ref().map(|change| change.apply_noting(PERMISSIONS, true, umask));
        for text in &self.paths {
            let path = writing.path(text)?;
            let path = Path::new(&path);
            if self.parents {
                for parent in parents(path) {
                    unless_there(writing, parent, make(writing, parent, umask & !OF_PARENTS))?;
                }
            }
            let made = match wanted {
                None => make(writing, path, umask),
                Some((permissions, decided)) => make_just_so(writing, path, permissions, decided),
            };
            if self.parents { unless_there(writing, path, made) } else { made }?;
        }
        Ok(())
    }
}

fn make(writing: &Writing, path: &Path, umask: u32) -> larder::Result<()> {
    writing.start.create_inode(path, &new_inode(DIRECTORY | PERMISSIONS, umask)).map(drop)
}

/// Creates a directory with these permissions. The `decided` bits are exactly as asked for,
/// whatever a default ACL says; of the others there may only be fewer.
fn make_just_so(
    writing: &Writing,
    path: &Path,
    permissions: u32,
    decided: u32,
) -> larder::Result<()> {
    let is_special = decided & SET_IDS != 0 || permissions & STICKY != 0;
    // Until it has its special bits, no other user may write to it.
    let withheld = SET_IDS | if is_special { OTHERS_WRITE } else { 0 };
    let new = new_inode(DIRECTORY | permissions & !withheld, 0);
    let made = writing.start.create_inode(path, &new)?;
    let seen = made.metadata().mode & (PERMISSIONS | SET_IDS | STICKY);
    if (seen ^ permissions) & decided != 0 {
        let permissions = Some(permissions | seen & !decided);
        made.set_attributes(&SetAttributes { permissions, ..Default::default() })?;
    }
    Ok(())
}

/// The parents of a path, from the root down, without the root itself.
fn parents(path: &Path) -> Vec<&Path> {
    let above = path.ancestors().skip(1);
    let mut parents: Vec<&Path> = above.filter(|path| path.parent().is_some()).collect();
    parents.reverse();
    parents
}

/// An existing directory is as good as a new one.
fn unless_there(writing: &Writing, path: &Path, made: larder::Result<()>) -> larder::Result<()> {
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            writing.start.open_directory(path).map(drop)
        }
        made => made,
    }
}
