//! A local directory of objects: each is a file.
//!
//! # Invariants
//! - A file gets its name when its content is durable. Until then its writer keeps it in the folder
//!   of temporaries, locked. The system unlocks it when it ends the writer.
//! - A replacement compares the content and renames the new file over it while it holds the lock
//!   that all processes take.
//! - A call succeeds only if its path leads to the directory that was there first. Otherwise the
//!   disk is not mounted any more, or somebody has moved the directory: the store does not answer
//!   until it is back. Nothing goes into another directory meanwhile.
//! - A version is a digest of all content: no two contents have the same.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use larder_platform::FileId;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::hex;

use super::{Listed, Problem, Store, StoreError, Version, Versioned};

/// The folder of files that are not objects yet.
const TEMPORARIES: &str = ".temporary";

/// The file whose lock makes a replacement one step among processes.
const LOCK: &str = ".lock";

/// A directory whose files are the objects. Files are durable, with their names, when a call
/// returns.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    name: String,
    /// The directory, since a call has found or made it.
    id: OnceLock<FileId>,
    /// The first write removes what killed writers have left.
    cleaned: Once,
}

impl Directory {
    /// The store in the directory `root`, which the first object creates.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let shown = root.display().to_string();
        let name = format!("file://{}", shown.trim_end_matches('/'));
        Self { name, root, id: OnceLock::new(), cleaned: Once::new() }
    }

    /// Whether the directory is the one that was there first, if one was.
    fn is_there(&self) -> io::Result<bool> {
        match FileId::of(&self.root) {
            Ok(id) => Ok(*self.id.get_or_init(|| id.clone()) == id),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(self.id.get().is_none()),
            Err(error) => Err(error),
        }
    }

    /// Makes a call, whose result counts if the directory is there afterwards.
    fn call<T>(&self, name: &str, call: impl FnOnce() -> io::Result<T>) -> Result<T, StoreError> {
        let result = call();
        if self.is_there().map_err(|error| self.failed(name, error))? {
            result.map_err(|error| self.failed(name, error))
        } else {
            let why = "its directory has gone, or is another one now: is its disk mounted?";
            Err(StoreError::new(Problem::Temporary, &self.name, name, why))
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        let mut path = self.root.clone();
        for part in name.split('/') {
            // By the names alone: what a URL of the other place would lead to.
            if part == ".." {
                path.pop();
            } else {
                path.push(part);
            }
        }
        path
    }

    fn failed(&self, name: &str, error: io::Error) -> StoreError {
        let problem = match error.kind() {
            ErrorKind::NotFound => Problem::NotFound,
            ErrorKind::AlreadyExists => Problem::Condition,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Problem::Denied,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Problem::Full,
            ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::StaleNetworkFileHandle => {
                Problem::Temporary
            }
            _ => Problem::Other,
        };
        StoreError::new(problem, &self.name, name, error)
    }

    fn changed(&self, name: &str) -> StoreError {
        StoreError::new(Problem::Condition, &self.name, name, "its content is another")
    }

    fn create_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        self.write(&path, content)?.persist_noclobber(&path)?;
        sync_directory(&path)
    }

    /// Returns false if the content is not the version that was expected.
    fn replace_file(&self, name: &str, content: &[u8], version: &Version) -> io::Result<bool> {
        let path = self.path(name);
        let file = self.write(&path, content)?;
        let _lock = locked(&self.path(LOCK))?;
        if version_of(&fs::read(&path)?) != *version {
            return Ok(false);
        }
        file.persist(&path)?;
        sync_directory(&path)?;
        Ok(true)
    }

    /// Writes a file that will have the name `path`.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<NamedTempFile> {
        if !self.is_there()? {
            return Err(ErrorKind::NotFound.into());
        }
        let temporaries = self.path(TEMPORARIES);
        refuse_link(&temporaries)?;
        create_directories(&temporaries)?;
        create_directories(path.parent().expect("a file is in a directory"))?;
        // What cannot be removed is in nobody's way.
        self.cleaned.call_once(|| drop(remove_unlocked(&temporaries)));
        let mut file = new_temporary(&temporaries)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        Ok(file)
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.path(name))?;
        let len_bytes = file.metadata()?.len();
        if range.start >= len_bytes {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it ends before the range"));
        }
        file.seek(SeekFrom::Start(range.start))?;
        let wanted = range.end.min(len_bytes) - range.start;
        let mut bytes = Vec::with_capacity(wanted as usize);
        file.take(wanted).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_whole(&self, name: &str) -> io::Result<Versioned> {
        let mut file = File::open(self.path(name))?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        let since = file.metadata()?.modified()?.duration_since(UNIX_EPOCH);
        let (version, modified) = (version_of(&content), since.map_or(0, |since| since.as_secs()));
        Ok(Versioned { content: content.into(), version, modified })
    }

    fn list_below(&self, directory: &Path, found: &mut Vec<Listed>) -> io::Result<()> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                self.list_below(&path, found)?;
                continue;
            }
            let below = path.strip_prefix(&self.root).expect("it was found there");
            let parts: Option<Vec<_>> = below.iter().map(OsStr::to_str).collect();
            let Some(parts) = parts.filter(|_| !is_hidden(&path)) else { continue };
            // Another process may delete it meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            found.push(Listed { name: parts.join("/"), len_bytes: metadata.len() });
        }
        Ok(())
    }
}

impl Store for Directory {
    fn name(&self) -> &str {
        &self.name
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.call(name, || self.read(name, range)).map(Bytes::from)
    }

    fn get_versioned(&self, name: &str) -> Result<Versioned, StoreError> {
        self.call(name, || self.read_whole(name))
    }

    fn try_create(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.call(name, || self.create_file(name, &content))
    }

    fn try_replace(
        &self,
        name: &str,
        content: Bytes,
        version: &Version,
    ) -> Result<Version, StoreError> {
        if self.call(name, || self.replace_file(name, &content, version))? {
            Ok(version_of(&content))
        } else {
            Err(self.changed(name))
        }
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.call(name, || match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let mut found = Vec::new();
        self.call(prefix, || self.list_below(&self.path(prefix), &mut found))?;
        Ok(found)
    }
}

/// The version of an object with this content.
fn version_of(content: &[u8]) -> Version {
    Version(hex::text(&Sha256::digest(content)))
}

/// A new file, locked.
fn new_temporary(temporaries: &Path) -> io::Result<NamedTempFile> {
    loop {
        let file = tempfile::Builder::new().prefix(".").tempfile_in(temporaries)?;
        match file.as_file().try_lock() {
            Ok(()) if file.path().exists() => return Ok(file),
            // Another process found it before it was locked, and removes it.
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Removes the files of killed writers.
fn remove_unlocked(temporaries: &Path) -> io::Result<()> {
    for entry in fs::read_dir(temporaries)? {
        let path = entry?.path();
        // Its writer may just have finished.
        let Ok(file) = File::open(&path) else { continue };
        if file.try_lock().is_ok() {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Locks the file `path`. The caller waits until no other process has it locked.
fn locked(path: &Path) -> io::Result<File> {
    refuse_link(path)?;
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Refuses a link in the place of what the store makes and empties for itself: it would do so
/// elsewhere.
fn refuse_link(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        let message = format!("{}: is a symbolic link: remove it", path.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

/// Creates `directory` and those above it, and makes their names durable.
fn create_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        create_directories(parent)?;
    }
    match fs::create_dir(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => sync_directory(directory),
    }
}

/// Makes the name of `path` durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => larder_platform::sync_directory(parent),
        _ => larder_platform::sync_directory(Path::new(".")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_write_removes_what_killed_writers_have_left() {
        let folder = tempfile::tempdir().unwrap();
        let temporaries = folder.path().join(TEMPORARIES);
        fs::create_dir(&temporaries).unwrap();
        let left = temporaries.join(".left");
        fs::write(&left, "bread").unwrap();
        let used = new_temporary(&temporaries).unwrap();
        let store = Directory::new(folder.path());
        store.create("maps/1", Bytes::from_static(b"butter")).unwrap();
        assert!(!left.exists() && used.path().exists());
        assert_eq!(temporaries.read_dir().unwrap().count(), 1);
        assert_eq!(store.list("").unwrap().len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_in_the_place_of_its_own_files_lead_the_store_nowhere() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let (root, other) = (folder.path().join("pantry"), folder.path().join("other"));
        fs::create_dir(&other).unwrap();
        let kept = other.join("kept");
        fs::write(&kept, "bread").unwrap();
        let store = Directory::new(&root);
        store.create("manifest", Bytes::from_static(b"butter")).unwrap();
        let version = store.get_versioned("manifest").unwrap().version;
        symlink(&kept, root.join(LOCK)).unwrap();
        store.try_replace("manifest", Bytes::from_static(b"jam"), &version).unwrap_err();
        fs::remove_file(root.join(LOCK)).unwrap();
        fs::remove_dir(root.join(TEMPORARIES)).unwrap();
        symlink(&other, root.join(TEMPORARIES)).unwrap();
        Directory::new(&root).try_create("maps/1", Bytes::from_static(b"jam")).unwrap_err();
        assert_eq!(fs::read(&kept).unwrap(), b"bread");
    }

    #[test]
    fn a_directory_that_goes_does_not_answer_and_no_other_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (root, away) = (folder.path().join("pantry"), folder.path().join("away"));
        let store = Directory::new(&root);
        let (bread, butter) = (Bytes::from_static(b"bread"), Bytes::from_static(b"butter"));
        store.try_create("manifest", bread.clone()).unwrap();
        let version = store.get_versioned("manifest").unwrap().version;
        fs::rename(&root, &away).unwrap();
        let assert_waits = || {
            let results = [
                store.try_create("maps/1", butter.clone()),
                store.try_replace("manifest", butter.clone(), &version).map(drop),
                store.get("manifest", 0..5).map(drop),
                store.get_versioned("manifest").map(drop),
                store.list("").map(drop),
                store.delete("manifest"),
            ];
            for result in results {
                let error = result.unwrap_err();
                assert_eq!(error.problem, Problem::Temporary, "{error}");
                assert!(error.to_string().contains("is its disk mounted?"), "{error}");
            }
        };
        assert_waits();
        assert!(!root.exists());
        // A place where a disk was mounted is an empty directory.
        fs::create_dir(&root).unwrap();
        assert_waits();
        assert_eq!(root.read_dir().unwrap().count(), 0);
        fs::remove_dir(&root).unwrap();

        fs::rename(&away, &root).unwrap();
        assert_eq!(store.get_versioned("manifest").unwrap().content, bread);
        store.try_create("maps/1", butter).unwrap();
    }

    #[test]
    fn contents_that_end_with_their_own_checksum_have_versions_of_their_own() {
        let sealed = |number: u32| {
            let content = number.to_le_bytes();
            [content, crc_fast::crc32_iscsi(&content).to_le_bytes()].concat()
        };
        assert_ne!(version_of(&sealed(1)), version_of(&sealed(2)));
    }

    /// Each thread has a store of its own, as processes have.
    #[test]
    fn of_replacements_at_once_one_succeeds() {
        const ROUNDS: u32 = 50;
        let folder = tempfile::tempdir().unwrap();
        let content = |number: u32| Bytes::copy_from_slice(&number.to_le_bytes());
        Directory::new(folder.path()).create("manifest", content(0)).unwrap();
        let add = || {
            let store = Directory::new(folder.path());
            let mut added = 0;
            while added < ROUNDS {
                let found = store.get_versioned("manifest").unwrap();
                let number = u32::from_le_bytes(found.content[..].try_into().unwrap());
                match store.try_replace("manifest", content(number + 1), &found.version) {
                    Ok(_) => added += 1,
                    Err(error) => assert_eq!(error.problem, Problem::Condition, "{error}"),
                }
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(add))));
        let store = Directory::new(folder.path());
        assert_eq!(store.get_versioned("manifest").unwrap().content, content(3 * ROUNDS));
    }
}
