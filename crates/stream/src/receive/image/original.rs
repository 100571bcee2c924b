//! Copies of files of the file system that changes.

use larder_filesystem::{Error, File, Filesystem, Inode};

use crate::wire::Original;

/// Bytes that are copied at a time, where data cannot be shared.
const PIECE_BYTES: u64 = 1 << 20;

impl Original {
    /// Whether this names `inode`.
    pub(super) fn is(self, inode: &Inode) -> bool {
        (self.subvolume, self.inode) == (inode.subvolume().id(), inode.number())
    }
}

/// Opens the original of a copy.
pub(super) fn open(original: Original, filesystem: &Filesystem) -> Result<File, Error> {
    filesystem.subvolume_by_id(original.subvolume)?.inode(original.inode)?.into_file()
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
