//! `IMAGE:/path`: a path in the file system on an image or device.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::devices;

/// A path in a file system that is not mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The image file or block device.
    pub image: PathBuf,
    /// The path in it; starts with a slash.
    pub path: Vec<u8>,
}

impl Target {
    /// Splits `text` at the first `:/`; a text without one means the root of the image.
    pub fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        match bytes.windows(2).position(|pair| pair == b":/") {
            Some(colon) => Self {
                image: OsString::from_vec(bytes[..colon].to_vec()).into(),
                path: bytes[colon + 1..].to_vec(),
            },
            None => Self { image: text.into(), path: b"/".to_vec() },
        }
    }
}

/// The path in a mounted file system in `text`, unless that is an `IMAGE:/path` of an existing
/// image, or an image or a device itself. A path that does not exist yet lies in a directory.
pub fn mounted_path(text: &OsStr) -> Option<&Path> {
    let image = Target::parse(text).image;
    let names_image = text.as_bytes().windows(2).any(|two| two == b":/");
    if (names_image && image.symlink_metadata().is_ok()) || devices::is_name(image.as_os_str()) {
        return None;
    }
    let path = Path::new(text);
    let is_mounted = match path.metadata() {
        Ok(metadata) => metadata.is_dir() || (metadata.is_file() && !is_image(path)),
        Err(_) => parent_of(path).is_dir(),
    };
    is_mounted.then_some(path)
}

/// The directory that contains `path`.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a file holds btrfs, as a whole or in a partition.
pub fn is_image(path: &Path) -> bool {
    larder_image::is_image(path)
}

impl Target {
    /// The path in the library's form.
    pub fn path_os(&self) -> &OsStr {
        OsStr::from_bytes(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_first_colon_and_slash() {
        let target = Target::parse(OsStr::new("dir/a:b.img:/home/x:/y"));
        assert_eq!(target.image, PathBuf::from("dir/a:b.img"));
        assert_eq!(target.path, b"/home/x:/y");
        assert_eq!(Target::parse(OsStr::new("disk.img")).path, b"/");
    }
}
