//! A folder for large files that live as long as a test.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A new empty folder, in memory if the machine has a tmpfs at `/dev/shm`; removed when dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes the folder. Panics if that is impossible.
    #[track_caller]
    pub fn new() -> Self {
        let mut builder = tempfile::Builder::new();
        builder.prefix("larder-testkit-");
        let folder = builder
            .tempdir_in("/dev/shm")
            .or_else(|_| builder.tempdir())
            .unwrap_or_else(|error| panic!("cannot make a scratch folder: {error}"));
        Self(folder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes a sparse file of `len_bytes` zero bytes in the folder.
    #[track_caller]
    pub fn sparse_file(&self, name: &str, len_bytes: u64) -> PathBuf {
        let path = self.path().join(name);
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(len_bytes))
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
