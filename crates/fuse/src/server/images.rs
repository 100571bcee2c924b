//! The images that are served: a process that has one open may mount the file system again.
//!
//! # Invariants
//! - Whatever the paths of the images lead to later, those count that were mounted.
//! - A descriptor that was opened for no access proves nothing.

use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

use super::refusal::{Refusal, refuse};
use crate::usage::Identity;

/// The images of a file system.
#[derive(Debug, Default)]
pub(super) struct Images(Vec<Identity>);

impl Images {
    /// The images at these paths, which are open.
    pub(super) fn at(paths: &[PathBuf]) -> Self {
        let identities = paths.iter().filter_map(|path| Identity::at(path));
        Self(identities.filter(|identity| identity.is_storage()).collect())
    }

    /// Whether `file` is one of them that is open for writing. Fails if it is none of them.
    pub(super) fn is_writable(&self, file: impl AsFd) -> Result<bool, Refusal> {
        let is_it = Identity::of(&file).is_some_and(|identity| self.0.contains(&identity));
        let flags = fcntl_getfl(file).unwrap_or(OFlags::PATH);
        let access = flags & OFlags::ACCMODE;
        let reads = !flags.contains(OFlags::PATH) && access != OFlags::WRONLY;
        if !(is_it && reads) {
            return Err(refuse(Errno::PERM, "the server has not mounted this image"));
        }
        Ok(access == OFlags::RDWR)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use larder_testkit::Scratch;
    use rustix::fs::{CWD, Mode, openat};

    use super::*;

    #[test]
    fn an_open_image_says_what_its_holder_may() {
        let scratch = Scratch::new();
        let (image, other) = (scratch.path().join("image"), scratch.path().join("other"));
        for path in [&image, &other] {
            File::create(path).unwrap();
        }
        let images = Images::at(&[image.clone(), "/dev/null".into()]);
        let of = |path: &PathBuf, flags| {
            let file = openat(CWD, path, flags, Mode::empty()).unwrap();
            images.is_writable(file).map_err(|refusal| refusal.errno)
        };
        assert_eq!(of(&image, OFlags::RDWR), Ok(true));
        assert_eq!(of(&image, OFlags::RDONLY), Ok(false));
        assert_eq!(of(&image, OFlags::WRONLY), Err(Errno::PERM));
        assert_eq!(of(&image, OFlags::PATH), Err(Errno::PERM));
        assert_eq!(of(&other, OFlags::RDWR), Err(Errno::PERM));
        assert_eq!(of(&"/dev/null".into(), OFlags::RDWR), Err(Errno::PERM), "everybody has it");
        std::fs::rename(&other, &image).unwrap();
        assert_eq!(of(&image, OFlags::RDWR), Err(Errno::PERM), "another one at the path");
    }
}
