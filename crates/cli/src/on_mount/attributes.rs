//! Changing attributes in trees.
//!
//! # Invariants
//! - What is changed is the inode whose attributes the change starts from, also if another has its
//!   path by then: users rename in directories that are theirs.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder::commands::{Command, Original};
use larder::{FileType, Metadata, WalkOptions, Walked};

use super::changes::OnMount;
use super::mount_path::MountPath;
use super::walk::{Walk, count};
use crate::progress::Progress;

/// The attributes that changes start from.
#[derive(Clone, Copy)]
pub struct Present {
    /// Type and permissions.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl From<&Metadata> for Present {
    fn from(metadata: &Metadata) -> Self {
        let Metadata { mode, uid, gid, .. } = *metadata;
        Self { mode, uid, gid }
    }
}

/// Changes the attributes of `path`, and of everything below if `recursive`. `changes` are below the
/// directory of its [`MountPath`]. `change` is the command for a path, from the present attributes.
/// Returns how many errors were reported.
pub fn change_attributes(
    changes: &mut OnMount,
    path: &Path,
    recursive: bool,
    change: impl for<'p> Fn(&'p [u8], Present) -> Option<Command<'p>>,
) -> anyhow::Result<usize> {
    let MountPath { name, .. } = MountPath::of(path)?;
    let tree = path.to_owned();
    let mut progress = Progress::of_files().counting(move || recursive.then(|| count(&tree))?);
    let mut walk = Walk::begin(path, WalkOptions { below: recursive, ..WalkOptions::default() })?;
    let mut directory = PathBuf::new();
    while let Some(walked) = walk.next()? {
        let (path, metadata) = match walked {
            Walked::Directory { path, metadata, .. } => {
                // Joining an empty path would end it with a slash.
                let is_top = path.is_empty();
                directory = if is_top { PathBuf::from(&name) } else { Path::new(&name).join(path) };
                (directory.clone(), metadata)
            }
            Walked::Entry { name, metadata, .. } if metadata.file_type != FileType::Directory => {
                (directory.join(name), metadata)
            }
            _ => continue,
        };
        progress.add(1);
        if let Some(command) = change(path.as_os_str().as_bytes(), Present::from(&metadata)) {
            let inode = Original { subvolume: metadata.subvolume, inode: metadata.inode };
            changes.make_on(inode, &command)?;
        }
        if !recursive {
            break;
        }
    }
    Ok(walk.failures())
}
