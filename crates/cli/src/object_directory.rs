//! Directories of objects, by their paths.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_objects::{ObjectDevice, Options, Store};

/// The URL of the directory `path`, if that holds the objects of a file system.
pub fn url_at(path: &Path) -> Option<PathBuf> {
    // Nothing else is read of a directory that cannot be one.
    if !path.join("manifest").is_file() {
        return None;
    }
    let url = url_of(path).ok()?;
    let store: Arc<dyn Store> = url.parse::<larder_objects::Address>().ok()?.connect().ok()?.0;
    ObjectDevice::open_read_only(store, None, &Options::default()).ok()?;
    Some(url.into())
}

/// The URL of a directory, which need not exist.
pub fn url_of(path: &Path) -> std::io::Result<String> {
    let path = std::path::absolute(path)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let letter = |byte: &u8| {
        if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
    };
    let letters: String = path.as_os_str().as_bytes().iter().map(letter).collect();
    Ok(format!("file://{letters}"))
}
