//! Small helpers for every chapter.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// Makes the file `path` with the content `bytes`.
pub(super) fn file(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let file = create(path)?;
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0)?;
    Ok(file)
}

/// Makes the empty file `path`, open for reading and writing.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot create {}: {error}", path.display()))
    })
}

/// Whether the kernel did it. One of `refusals` is not an error, since the image does not allow it.
pub(super) fn unless_refused(
    result: rustix::io::Result<()>,
    refusals: &[Errno],
) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(errno) if refusals.contains(&errno) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
