//! Files that a stream copies from the file system that it changes.

use larder_filesystem::{Error, File, Filesystem};
use larder_format::Uuid;

use crate::wire::Command;

/// Bytes that are copied at a time, where data cannot be shared.
const PIECE_BYTES: u64 = 1 << 20;

/// A file, by the id of its subvolume and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// Id of the subvolume.
    pub subvolume: u64,
    /// Number of the inode.
    pub inode: u64,
}

impl Original {
    /// The command that makes the new file at `path` a copy of this one.
    pub fn copied_to(self, path: &[u8]) -> Command<'_> {
        Command::Clone {
            offset: 0,
            len: 0,
            path,
            clone_uuid: Uuid::from_u64_pair(self.subvolume, self.inode),
            clone_ctransid: 0,
            clone_path: b"",
            clone_offset: 0,
        }
    }

    /// The original of the file that `command` completes, if it is as above. A clone in a stream
    /// has a length.
    pub fn of(command: &Command<'_>) -> Option<Self> {
        match *command {
            Command::Clone { len: 0, offset: 0, clone_offset: 0, clone_uuid, .. } => {
                let (subvolume, inode) = clone_uuid.as_u64_pair();
                Some(Self { subvolume, inode })
            }
            _ => None,
        }
    }

    pub(super) fn open(self, filesystem: &Filesystem) -> Result<File, Error> {
        filesystem.subvolume_by_id(self.subvolume)?.inode(self.inode)?.into_file()
    }
}

/// Gives `copy`, which is new and empty, the content of `original`. Returns whether they share it,
/// so that the attributes of the copy stayed. Otherwise data is copied, and `goes_on` is asked
/// before each piece.
pub(super) fn copy_content(
    original: &File,
    copy: &File,
    goes_on: &dyn Fn() -> bool,
) -> Result<bool, Error> {
    match copy.clone_as_new(original) {
        // Only one of them has checksums.
        Err(Error::Invalid(_)) => copy_data(original, copy, goes_on).map(|()| false),
        shared => shared.map(|()| true),
    }
}

fn copy_data(original: &File, copy: &File, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
    let len_bytes = original.len_bytes();
    let mut piece = vec![0; len_bytes.min(PIECE_BYTES) as usize];
    for range in original.data_ranges()? {
        let end = range.end.min(len_bytes);
        let mut offset = range.start;
        while offset < end {
            if !goes_on() {
                return Err(Error::Invalid("a copy that was stopped"));
            }
            let wanted = (end - offset).min(PIECE_BYTES) as usize;
            let len = original.read_at(&mut piece[..wanted], offset)?;
            if len == 0 {
                // It became shorter.
                return Ok(());
            }
            copy.write_at(&piece[..len], offset)?;
            offset += len as u64;
        }
    }
    copy.set_len(len_bytes)
}
