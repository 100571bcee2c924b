//! `IMAGE@GENERATION`: an earlier state of the file system on an image.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use larder::{OpenOptions, SearchProgress};
use larder_image::is_image;

use crate::devices;
use crate::progress::Progress;

/// The image that `text` names, and the generation of the state, unless that is the last one. If a
/// file has the name `text`, `@` included, it is that file.
pub fn split(text: &Path) -> (PathBuf, Option<u64>) {
    earlier(text).unwrap_or_else(|| (text.to_owned(), None))
}

/// Whether `text` names an earlier state of an image.
pub fn is_earlier(text: &Path) -> bool {
    earlier(text).is_some()
}

fn earlier(text: &Path) -> Option<(PathBuf, Option<u64>)> {
    let bytes = text.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'@')?;
    let digits = bytes[at + 1..].iter().all(u8::is_ascii_digit);
    let generation = str::from_utf8(&bytes[at + 1..]).ok().filter(|_| digits)?.parse().ok()?;
    let image = Path::new(OsStr::from_bytes(&bytes[..at]));
    // States of object storage are those of its own numbers.
    let is_url = larder_objects::is_url(text.as_os_str());
    (!is_url && text.symlink_metadata().is_err() && holds_filesystem(image))
        .then(|| (image.to_owned(), Some(generation)))
}

fn holds_filesystem(image: &Path) -> bool {
    let is_uuid = image.as_os_str().as_bytes().starts_with(b"UUID=");
    match image.metadata() {
        Ok(metadata) if metadata.is_file() => is_image(image),
        Ok(metadata) => metadata.file_type().is_block_device(),
        Err(_) => is_uuid && devices::is_name(image.as_os_str()),
    }
}

/// Shows the progress of a search for an earlier state on a terminal.
pub fn search_shown(options: OpenOptions) -> OpenOptions {
    let line: Mutex<Option<Progress>> = Mutex::new(None);
    options.search_progress(move |now: SearchProgress| {
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        if now.done_bytes == now.total_bytes {
            *line = None;
            return;
        }
        line.get_or_insert_with(Progress::of_bytes).set_of(now.done_bytes, now.total_bytes);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_image_has_states() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let options = larder::mkfs::MkfsOptions {
            byte_count: Some(128 << 20),
            ..larder::mkfs::MkfsOptions::default()
        };
        for name in ["disk.img", "disk.img@7"] {
            larder::mkfs::mkfs(&[path(name)], &options).unwrap();
        }
        std::fs::write(path("text"), "no file system").unwrap();
        let split = |name: &str| {
            let (image, generation) = split(&path(name));
            (image.file_name().unwrap().to_str().unwrap().to_owned(), generation)
        };
        let whole = |name: &str| (name.to_owned(), None);
        assert_eq!(split("disk.img@12"), ("disk.img".to_owned(), Some(12)));
        assert_eq!(split("disk.img@7@12"), ("disk.img@7".to_owned(), Some(12)));
        // The file itself.
        assert_eq!(split("disk.img@7"), whole("disk.img@7"));
        for name in ["disk.img", "disk.img@", "disk.img@x1", "disk.img@+1", "text@12", "none@12"] {
            assert_eq!(split(name), whole(name));
        }
        assert_eq!(split("disk.img@99999999999999999999"), whole("disk.img@99999999999999999999"));
    }
}
