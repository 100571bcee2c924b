//! Windows: a name is text, and files have no owners that btrfs could name.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, IoSlice};
use std::os::windows::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::windows::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::wide;

/// Names that are not UTF-8, and the bytes of such names. They stay in memory: each is kept once,
/// and lent for as long as the process runs.
static NAMES: Mutex<BTreeSet<&'static OsStr>> = Mutex::new(BTreeSet::new());
static BYTES: Mutex<BTreeSet<&'static [u8]>> = Mutex::new(BTreeSet::new());

fn kept<T: Ord + ?Sized>(all: &Mutex<BTreeSet<&'static T>>, one: Box<T>) -> &'static T {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(&*one) {
        return known;
    }
    let one = Box::leak(one);
    all.insert(one);
    one
}

/// Names as bytes, as a file system has them. They are UTF-8, except for bytes that cannot be:
/// each of these is an unpaired surrogate in the name.
pub trait OsStrExt {
    /// The name of these bytes.
    fn from_bytes(bytes: &[u8]) -> &Self;

    /// The bytes of the name.
    fn as_bytes(&self) -> &[u8];
}

impl OsStrExt for OsStr {
    fn from_bytes(bytes: &[u8]) -> &Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(_) => {
                kept(&NAMES, OsString::from_wide(&wide::from_bytes(bytes)).into_boxed_os_str())
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self.to_str() {
            Some(text) => text.as_bytes(),
            None => kept(&BYTES, wide::to_bytes(self.encode_wide()).into_boxed_slice()),
        }
    }
}

/// Names that are owned; see [`OsStrExt`].
pub trait OsStringExt {
    /// The name of these bytes.
    fn from_vec(bytes: Vec<u8>) -> Self;

    /// The bytes of the name.
    fn into_vec(self) -> Vec<u8>;
}

impl OsStringExt for OsString {
    fn from_vec(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(error) => Self::from_wide(&wide::from_bytes(error.as_bytes())),
        }
    }

    fn into_vec(self) -> Vec<u8> {
        match self.into_string() {
            Ok(text) => text.into_bytes(),
            Err(name) => wide::to_bytes(name.encode_wide()),
        }
    }
}

/// The path of `below` in `directory`, inside a file system.
pub fn join(directory: &Path, below: impl AsRef<OsStr>) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    if !path.is_empty() && !path.as_bytes().ends_with(b"/") {
        path.push("/");
    }
    path.push(below);
    path.into()
}

/// The directory of a path inside a file system, and the name in it. `None` for the name if the path
/// leads to the root or ends with `..`.
pub fn split(path: &Path) -> (&Path, Option<&OsStr>) {
    let mut path = path.as_os_str().as_bytes();
    while let Some(shorter) = path.strip_suffix(b"/").or_else(|| path.strip_suffix(b"/.")) {
        path = shorter;
    }
    let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = path.split_at(name_at);
    let is_name = !matches!(name, b"" | b"..");
    (Path::new(OsStr::from_bytes(directory)), is_name.then(|| OsStr::from_bytes(name)))
}

/// Reads and writes at an offset. They move the file's own position, which callers must not use.
pub trait FileExt {
    /// Reads some bytes at `offset`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf` from `offset`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.seek_read(buf, offset)
    }

    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.seek_read(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buf = &mut buf[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.seek_write(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    buf = &buf[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Writes some of `bufs` at `offset`, and returns how many bytes that was.
///
/// # Errors
/// Those of the system.
pub fn write_vectored_at(file: &File, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    let first = bufs.iter().find(|buf| !buf.is_empty());
    first.map_or(Ok(0), |buf| file.seek_write(buf, offset))
}

/// Leaves the names in `directory` to the system, which opens no directory as a file.
///
/// # Errors
/// None.
pub fn sync_directory(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// The time since a moment in the past that stays the same while the process runs. It goes on while
/// the system sleeps, and nobody sets it.
pub fn uptime() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// The types of files that Windows lacks.
pub trait FileTypeExt {
    /// No file is a block device: disks are not files here.
    fn is_block_device(&self) -> bool;
}

impl FileTypeExt for FileType {
    fn is_block_device(&self) -> bool {
        false
    }
}

/// What a path leads to, whatever its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileId(PathBuf);

impl FileId {
    /// What `path` leads to, through symbolic links. Hard links count as different files.
    ///
    /// # Errors
    /// Those of looking at it.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self(path.canonicalize()?))
    }
}

/// Creates a folder and those above it, as far as they are missing. They are as private as those
/// above them.
///
/// # Errors
/// Those of the system.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Returns `options` as they are: who may read a file depends on its folder in Windows.
pub fn for_this_user_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// The number of a device, as btrfs has it: there are none in Windows.
pub fn device_number(major: u32, minor: u32) -> u64 {
    u64::from(major) << 20 | u64::from(minor)
}

/// The owner of new files: root.
pub fn user() -> (u32, u32) {
    (0, 0)
}
