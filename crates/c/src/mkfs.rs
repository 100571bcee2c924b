//! Making file systems.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use larder::mkfs::{MkfsError, MkfsOptions, mkfs};

use crate::arguments::{path, paths};
use crate::outcome::{Failure, number};

impl From<MkfsError> for Failure {
    fn from(error: MkfsError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// Makes a file system on `count` image files or block devices. An image that is not there is
/// created, `size` bytes long; with 0 devices are used whole. `label` may be NULL. With `force`,
/// existing content is overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_mkfs(
    images: *const *const c_char,
    count: usize,
    size: u64,
    label: *const c_char,
    force: bool,
) -> c_int {
    number(|| {
        // SAFETY: C promises it.
        let images = unsafe { paths(images, count) }?;
        // SAFETY: C promises it.
        let label = if label.is_null() { Path::new("") } else { unsafe { path(label) }? };
        let not_text = || Failure::new(libc::EINVAL, "the label is not UTF-8");
        let options = MkfsOptions {
            byte_count: (size != 0).then_some(size),
            label: label.to_str().ok_or_else(not_text)?.to_owned(),
            force,
            ..MkfsOptions::default()
        };
        let images: Vec<PathBuf> = images.into_iter().map(Path::to_owned).collect();
        mkfs(&images, &options)?;
        Ok(())
    })
}
