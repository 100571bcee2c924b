//! `IMAGE:/path`: a path in the file system on an image or device.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::devices;
use crate::objects::url_at;
use crate::state;

/// A path in a file system that is not mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The image file or block device, with `@GENERATION` after it if an earlier state is meant.
    pub image: PathBuf,
    /// The path in it; starts with a slash.
    pub path: Vec<u8>,
}

impl Target {
    /// Splits `text` at the first `:/` after the scheme of a URL; a text without one means the root
    /// of the image.
    pub fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        match path_colon(text) {
            Some(colon) => Self {
                image: OsString::from_vec(bytes[..colon].to_vec()).into(),
                path: bytes[colon + 1..].to_vec(),
            },
            None => Self { image: text.into(), path: b"/".to_vec() },
        }
    }
}

/// Where the `:/` of an `IMAGE:/path` is.
fn path_colon(text: &OsStr) -> Option<usize> {
    let bytes = text.as_bytes();
    let scheme =
        if larder_objects::is_url(text) { bytes.iter().position(|b| *b == b'/')? } else { 0 };
    let colon = bytes[scheme..].windows(2).position(|pair| pair == b":/")?;
    Some(scheme + colon)
}

/// Whether `text` is an `IMAGE:/path`.
pub fn names_image(text: &OsStr) -> bool {
    path_colon(text).is_some()
}

/// The path in a mounted file system in `text`, unless that is an `IMAGE:/path` of an existing
/// image, or an image or a device itself. A path that does not exist yet lies in a directory.
pub fn mounted_path(text: &OsStr) -> Option<&Path> {
    let (image, generation) = state::split(&Target::parse(text).image);
    let is_named =
        generation.is_some() || devices::is_name(image.as_os_str()) || larder_objects::is_url(text);
    if is_named || (names_image(text) && image.symlink_metadata().is_ok()) {
        return None;
    }
    let path = Path::new(text);
    let is_mounted = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => !is_directory_of_objects(path),
        Ok(metadata) => metadata.is_file() && !is_image(path),
        Err(_) => parent_of(path).is_dir(),
    };
    is_mounted.then_some(path)
}

/// Whether a directory stands for the file system whose objects it holds. One that lies in a mounted
/// btrfs is a directory there.
fn is_directory_of_objects(path: &Path) -> bool {
    let is_in_btrfs = || File::open(path).and_then(larder_ioctl::filesystem_info).is_ok();
    url_at(path).is_some() && !is_in_btrfs()
}

/// The text of an `IMAGE:/path`, which a bare `IMAGE` is made to: names below can be joined to it.
pub fn image_path(text: &OsStr) -> PathBuf {
    if names_image(text) {
        return text.into();
    }
    OsString::from_vec([text.as_bytes(), b":/"].concat()).into()
}

/// The name of `path` below what a user calls `place`, an `IMAGE:/path` or a path of a mounted file
/// system.
pub fn below(place: &OsStr, path: &Path) -> PathBuf {
    let place = mounted_path(place).map_or_else(|| image_path(place), Path::to_owned);
    if path.as_os_str().is_empty() { place } else { place.join(path) }
}

/// The name of an entry of `directory`, also if it has a slash, as a hostile image may have one.
pub fn entry_path(directory: &Path, name: &OsStr) -> PathBuf {
    let directory = directory.as_os_str().as_bytes();
    let is_separated = directory.is_empty() || directory.ends_with(b"/");
    let separator: &[u8] = if is_separated { b"" } else { b"/" };
    OsString::from_vec([directory, separator, name.as_bytes()].concat()).into()
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
        let target = Target::parse(OsStr::new("s3://bucket/photos@yesterday:/2024"));
        assert_eq!(target.image, PathBuf::from("s3://bucket/photos@yesterday"));
        assert_eq!(target.path, b"/2024");
        assert_eq!(Target::parse(OsStr::new("s3://bucket")).path, b"/");
    }

    #[test]
    fn names_below_an_image_name_it() {
        for (place, expected) in
            [("x.img", "x.img:/a"), ("x.img:/", "x.img:/a"), ("x.img:/d", "x.img:/d/a")]
        {
            assert_eq!(
                entry_path(&image_path(OsStr::new(place)), OsStr::new("a")),
                Path::new(expected)
            );
        }
        assert_eq!(entry_path(Path::new("m"), OsStr::new("/etc")), Path::new("m//etc"));
    }
}
