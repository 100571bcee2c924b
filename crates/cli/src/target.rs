//! `IMAGE:/path`: a path in the file system on an image or device.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

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

impl Target {
    /// The path as the library takes it.
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
