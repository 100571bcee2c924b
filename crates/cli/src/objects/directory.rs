//! Directories of objects, by their paths.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_objects::{Address, Settings};

/// The URL of the directory `path`, if that holds the objects of a file system.
pub fn url_at(path: &Path) -> Option<PathBuf> {
    // Nothing else is read of a directory that cannot be one.
    if !path.join("manifest").is_file() {
        return None;
    }
    let url = url_of(path).ok()?;
    let address: Address = url.parse().ok()?;
    address.has_filesystem(&Settings::from_environment().ok()?).then(|| url.into())
}

/// The URL of a directory, which need not exist.
///
/// # Errors
/// `InvalidInput` for a name that no URL of objects has.
pub fn url_of(path: &Path) -> io::Result<String> {
    let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let path = std::path::absolute(path)?;
    let name = path.file_name().unwrap_or_default().as_bytes();
    if name.contains(&b'@') {
        return Err(refused("a state is named after an '@'; choose another name"));
    }
    // What is no place of a URL is refused with the URL.
    let path = path.into_os_string().into_string();
    let path = path.map_err(|_| refused("its name is not UTF-8; choose another name"))?;
    Ok(format!("file://{path}"))
}
