//! Random work with fsyncs in between, through system calls.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{FallocateFlags, RenameFlags, XattrFlags};

const FOLDERS: usize = 5;
const NAMES: usize = 12;

/// Folders below folders, which may be gone, and names in them.
pub(crate) struct Player {
    root: PathBuf,
    random: StdRng,
}

impl Player {
    pub(crate) fn new(root: &Path, seed: u64) -> Self {
        Self { root: root.to_owned(), random: StdRng::seed_from_u64(seed) }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.random_range(0..limit)
    }

    fn folder(&mut self) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..self.below(3) {
            path.push(format!("folder-{}", self.below(FOLDERS)));
        }
        path
    }

    fn file(&mut self) -> PathBuf {
        let folder = self.folder();
        folder.join(format!("file-{}", self.below(NAMES)))
    }

    /// Does what is possible; a missing or existing name is refused.
    pub(crate) fn play(&mut self, steps: usize) {
        for _ in 0..steps {
            let _refused: io::Result<()> = self.step();
        }
    }

    /// Syncs something.
    pub(crate) fn sync(&mut self) {
        let path = if self.below(3) == 0 { self.folder() } else { self.file() };
        if let Ok(file) = File::open(path) {
            let synced = if self.below(4) == 0 { file.sync_data() } else { file.sync_all() };
            synced.expect("what is open can be synced");
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let path = self.file();
        match self.below(20) {
            0..4 => {
                let file =
                    OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
                let at = self.below(200_000) as u64;
                let len_bytes = [10, 1_000, 9_000, 70_000, 200_000][self.below(5)];
                let byte = self.below(256) as u8;
                file.write_all_at(&vec![byte; len_bytes], at * self.below(2) as u64)
            }
            4 => fs::write(path, vec![7; self.below(3000)]),
            5 => {
                let len_bytes = self.below(150_000) as u64;
                OpenOptions::new().write(true).open(path)?.set_len(len_bytes)
            }
            6..8 => fs::remove_file(path),
            8..11 => fs::rename(path, self.file()),
            11 => {
                let cwd = rustix::fs::CWD;
                let other = self.file();
                Ok(rustix::fs::renameat_with(cwd, path, cwd, other, RenameFlags::EXCHANGE)?)
            }
            12..14 => fs::hard_link(path, self.file()),
            14 => {
                let folder = self.folder();
                fs::create_dir(folder.join(format!("folder-{}", self.below(FOLDERS))))
            }
            15 => fs::remove_dir(self.folder()),
            16 => fs::rename(self.folder(), {
                let folder = self.folder();
                folder.join(format!("folder-{}", self.below(FOLDERS)))
            }),
            17 => {
                let name = format!("user.{}", self.below(4));
                if self.below(3) == 0 {
                    return Ok(rustix::fs::removexattr(path, name)?);
                }
                let value = vec![1; self.below(500)];
                Ok(rustix::fs::setxattr(path, name, &value, XattrFlags::empty())?)
            }
            18 => {
                fs::set_permissions(path, fs::Permissions::from_mode(0o600 + self.below(8) as u32))
            }
            _ => {
                let file = OpenOptions::new().write(true).open(path)?;
                let mode = [
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    FallocateFlags::ZERO_RANGE,
                ][self.below(4)];
                let (at, len_bytes) = (self.below(100_000), 1 + self.below(100_000));
                Ok(rustix::fs::fallocate(&file, mode, at as u64, len_bytes as u64)?)
            }
        }
    }
}
