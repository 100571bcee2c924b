//! An image that the kernel made and filled with inline files.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, ensure};
use larder_testkit::{KernelMount, Scratch};

/// Files in one directory.
const FILES_PER_DIRECTORY: usize = 10_000;

/// The place of the image: in a scratch directory, or in a file that the caller keeps.
pub struct InlineFiles {
    path: PathBuf,
    _scratch: Option<Scratch>,
}

impl InlineFiles {
    /// Takes the image at `kept` if it exists, otherwise makes one of `files` files of
    /// `file_bytes`.
    pub fn new(files: usize, file_bytes: usize, kept: Option<&Path>) -> anyhow::Result<Self> {
        Self::with_space(files, file_bytes, 0, kept)
    }

    /// Likewise, with space for `spare_bytes` of other data in an image that it makes.
    pub fn with_space(
        files: usize,
        file_bytes: usize,
        spare_bytes: u64,
        kept: Option<&Path>,
    ) -> anyhow::Result<Self> {
        if let Some(path) = kept.filter(|path| path.exists()) {
            return Ok(Self { path: path.to_owned(), _scratch: None });
        }
        let scratch = kept.is_none().then(|| Scratch::new());
        let path = match (&scratch, kept) {
            (Some(scratch), _) => scratch.path().join("inline-files.img"),
            (None, Some(path)) => path.to_owned(),
            (None, None) => unreachable!("there is a scratch directory if no image is kept"),
        };
        eprintln!("making an image of {files} files of {file_bytes} bytes with the kernel ...");
        make(&path, files, file_bytes, spare_bytes)?;
        Ok(Self { path, _scratch: scratch })
    }

    /// The image file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An empty file system in a sparse file of `len_bytes`, as mkfs.btrfs makes it by default.
pub fn make_empty(path: &Path, len_bytes: u64) -> anyhow::Result<()> {
    File::create(path)?.set_len(len_bytes)?;
    let output = Command::new("mkfs.btrfs").args(["-q", "-f"]).arg(path).output();
    let output = output.context("mkfs.btrfs, of btrfs-progs")?;
    ensure!(output.status.success(), "mkfs.btrfs: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn make(path: &Path, files: usize, file_bytes: usize, spare_bytes: u64) -> anyhow::Result<()> {
    let for_files = files as u64 * (file_bytes as u64 + 1024) * 5;
    make_empty(path, for_files.max(1 << 30) + spare_bytes)?;
    let mount = KernelMount::open(&[path.to_owned()], "max_inline=2048");
    let content = vec![b'x'; file_bytes];
    let directories = files.div_ceil(FILES_PER_DIRECTORY);
    let fill = |writer: usize| -> anyhow::Result<()> {
        for directory in (writer..directories).step_by(2) {
            let folder = mount.path().join(format!("d{directory:04}"));
            fs::create_dir(&folder)?;
            let first = directory * FILES_PER_DIRECTORY;
            for number in first..files.min(first + FILES_PER_DIRECTORY) {
                File::create(folder.join(format!("file{number:08}")))?.write_all(&content)?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| fill(1));
        fill(0).context("cannot fill the image")?;
        other.join().expect("the other writer does not panic")
    })
}
