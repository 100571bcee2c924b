//! What a copy keeps.

use larder_filesystem::{FileType, NewInode};

const ALL_PERMISSIONS: u32 = 0o7777;

/// What a copy keeps besides content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Permissions. The copies belong to the user of this process.
    Permissions {
        /// Permissions that no copy gets.
        umask: u32,
    },
    /// Modes, owners, times, extended attributes, ACLs and hard links.
    Everything,
}

impl Keep {
    /// Whether a copy overwrites a file with so many names, as cp does. One that keeps everything
    /// is no further name of other files.
    pub fn overwrites(self, names: u32) -> bool {
        self != Self::Everything || names == 1
    }

    /// The attributes for creating a copy of an inode with this `mode`. A copy that keeps everything
    /// has the permissions `at_first` until it is complete.
    pub fn new_inode(self, mode: u32, at_first: u32) -> NewInode {
        let file_type = mode & !ALL_PERMISSIONS;
        match self {
            Self::Everything => new_inode(file_type | at_first, 0),
            Self::Permissions { umask } => new_inode(file_type | plain_permissions(mode), umask),
        }
    }
}

/// The permissions of an inode that mkdir(2) or open(2) makes of `mode`: a directory keeps its
/// sticky bit.
fn plain_permissions(mode: u32) -> u32 {
    let is_directory = FileType::from_mode(mode) == Some(FileType::Directory);
    mode & if is_directory { 0o1777 } else { 0o777 }
}

/// The attributes that the system would give a program which asks for `mode`, type and permissions:
/// a umask removes some, or a default ACL replaces it.
pub fn new_inode(mode: u32, umask: u32) -> NewInode {
    let (uid, gid) = larder_platform::user();
    NewInode { mode, uid, gid, umask, device: (0, 0) }
}
