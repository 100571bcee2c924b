//! The inodes that commands make.

use larder_filesystem::FileType;

use super::error::CommandProblem;
use crate::wire::Command;

/// An inode that a command makes. Permissions for others than its owner are set later.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeNode<'a> {
    pub(super) path: &'a [u8],
    pub(super) file_type: FileType,
    /// Without the type.
    pub(super) permissions: u32,
    /// Major and minor number.
    pub(super) device: (u32, u32),
    /// The target of a symbolic link; empty for other types.
    pub(super) target: &'a [u8],
}

impl<'a> MadeNode<'a> {
    /// The inode that `command` makes, if it makes one.
    pub(super) fn of(command: &Command<'a>) -> Result<Option<Self>, CommandProblem> {
        let of = |path: &'a [u8], file_type, permissions| Self {
            path,
            file_type,
            permissions,
            device: (0, 0),
            target: b"",
        };
        Ok(Some(match *command {
            Command::Mkfile { path, .. } => of(path, FileType::Regular, 0o600),
            Command::Mkdir { path, .. } => of(path, FileType::Directory, 0o700),
            Command::Mkfifo { path, .. } => of(path, FileType::Fifo, 0o600),
            Command::Mksock { path, .. } => of(path, FileType::Socket, 0o600),
            Command::Symlink { path, target, .. } => {
                Self { target, ..of(path, FileType::Symlink, 0o777) }
            }
            Command::Mknod { path, rdev, mode, .. } => match FileType::from_mode(mode as u32) {
                Some(file_type @ (FileType::BlockDevice | FileType::CharDevice)) => {
                    Self { device: major_and_minor(rdev), ..of(path, file_type, 0o600) }
                }
                _ => return Err(CommandProblem::Invalid("the mode is not that of a device")),
            },
            _ => return Ok(None),
        }))
    }
}

/// Major and minor number of a device number as user space has it: 12 bits of major, 20 of minor.
fn major_and_minor(rdev: u64) -> (u32, u32) {
    let (major, minor) = (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xf_ff00);
    (major as u32, minor as u32)
}
