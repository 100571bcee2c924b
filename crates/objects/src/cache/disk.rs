//! Content of segments on a disk of this machine, where later processes find it.
//!
//! ```text
//!   FOLDER/DEVICE/SEGMENT.CHUNK      16 bytes of header, then the chunk
//!   FOLDER/DEVICE/seen               what this machine knows of the device
//! ```
//!
//! # Invariants
//! - A thread uses a chunk only if its checksum is right, which covers the device, the segment and
//!   the chunk's number, too. A torn, damaged or renamed file costs a request, nothing else.
//! - The chunks of all devices in the folder take at most the capacity. Each further process that
//!   uses the folder at the same time may add a sixteenth.
//! - A disk that fails ends the use of the folder, and no read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use larder_platform::errno::in_words;
use xxhash_rust::xxh64::Xxh64;

use super::ChunkKey;
use crate::options::CacheFolder;
use crate::pool::Pool;
use crate::seen;

const MAGIC: [u8; 8] = *b"LARDRCH3";

const HEADER_BYTES: usize = 16;

/// More chunks than that wait for no disk.
const MOST_WAITING: usize = 512;

/// How exactly the time of a chunk's last use is known.
const USE_TIME: Duration = Duration::from_secs(60);

/// Chunks of one device's segments on a disk.
#[derive(Debug)]
pub(crate) struct DiskCache {
    shared: Arc<Shared>,
    writing: Pool,
}

#[derive(Debug)]
struct Shared {
    folder: CacheFolder,
    device: uuid::Uuid,
    path: PathBuf,
    /// Since the folder was last measured.
    added_bytes: AtomicU64,
    has_failed: AtomicBool,
}

impl DiskCache {
    /// The chunks of `device` in `folder`. `None`, after a warning, if it cannot be used.
    pub(crate) fn open(folder: &CacheFolder, device: [u8; 16]) -> Option<Self> {
        let device = uuid::Uuid::from_bytes(device);
        let path = folder.path.join(device.as_hyphenated().to_string());
        let shared = Shared {
            folder: folder.clone(),
            device,
            path,
            added_bytes: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        };
        if let Err(error) = shared.prepare() {
            tracing::warn!("no cache on disk in {}: {}", folder.path.display(), in_words(&error));
            return None;
        }
        Some(Self { shared: Arc::new(shared), writing: Pool::new(1) })
    }

    /// A chunk, if it is here and undamaged.
    pub(crate) fn get(&self, key: ChunkKey) -> Option<Bytes> {
        self.shared.get(key)
    }

    /// Removes a chunk. Returns whether it was here.
    pub(crate) fn forget(&self, key: ChunkKey) -> bool {
        fs::remove_file(self.shared.path_of(key)).is_ok()
    }

    /// Keeps a chunk, unless the disk is too slow.
    pub(crate) fn put(&self, key: ChunkKey, content: Bytes) {
        let shared = &self.shared;
        if shared.has_failed.load(Ordering::Relaxed) || self.writing.waiting() >= MOST_WAITING {
            return;
        }
        let shared = Arc::clone(shared);
        self.writing.run(move || {
            if let Err(error) = shared.put(key, &content)
                && !shared.has_failed.swap(true, Ordering::Relaxed)
            {
                let path = shared.folder.path.display();
                tracing::warn!("no more is kept in the cache {path}: {}", in_words(&error));
            }
        });
    }
}

impl Shared {
    fn prepare(&self) -> io::Result<()> {
        larder_platform::create_private_folders(&self.path)?;
        self.trim()
    }

    fn path_of(&self, (segment, index): ChunkKey) -> PathBuf {
        self.path.join(format!("{segment}.{index}"))
    }

    fn checksum(&self, (segment, index): ChunkKey, content: &[u8]) -> u64 {
        let mut hash = Xxh64::new(0);
        hash.update(self.device.as_bytes());
        hash.update(&segment.raw().to_le_bytes());
        hash.update(&index.to_le_bytes());
        hash.update(content);
        hash.digest()
    }

    fn get(&self, key: ChunkKey) -> Option<Bytes> {
        let path = self.path_of(key);
        let bytes = Bytes::from(fs::read(&path).ok()?);
        let is_whole = bytes.len() > HEADER_BYTES && bytes[..8] == MAGIC;
        let content = if is_whole { bytes.slice(HEADER_BYTES..) } else { Bytes::new() };
        if !is_whole || bytes[8..HEADER_BYTES] != self.checksum(key, &content).to_le_bytes() {
            tracing::warn!("{}: damaged, and fetched again", path.display());
            // If it stays, the next chunk of that name replaces it.
            let _ = fs::remove_file(&path);
            return None;
        }
        note_use(&path);
        Some(content)
    }

    fn put(&self, key: ChunkKey, content: &[u8]) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
        file.write_all(&MAGIC)?;
        file.write_all(&self.checksum(key, content).to_le_bytes())?;
        file.write_all(content)?;
        file.persist(self.path_of(key))?;
        let added = (HEADER_BYTES + content.len()) as u64;
        let added = self.added_bytes.fetch_add(added, Ordering::Relaxed) + added;
        if added >= self.slack_bytes() { self.trim() } else { Ok(()) }
    }

    /// How much a process adds before it measures the folder again.
    fn slack_bytes(&self) -> u64 {
        self.folder.capacity_bytes / 16
    }

    /// Removes the chunks of all devices whose last use is longest ago, until there is room for
    /// what this process adds before it measures again.
    fn trim(&self) -> io::Result<()> {
        self.added_bytes.store(0, Ordering::Relaxed);
        let mut chunks = Vec::new();
        for device in fs::read_dir(&self.folder.path)? {
            let device = device?.path();
            if is_of_a_device(&device) {
                chunks.extend(files(&device)?);
            }
        }
        let mut bytes: u64 = chunks.iter().map(|chunk| chunk.len_bytes).sum();
        chunks.sort_by_key(|chunk| chunk.used);
        for chunk in chunks {
            if bytes <= self.folder.capacity_bytes - self.slack_bytes() {
                break;
            }
            match fs::remove_file(&chunk.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => bytes -= chunk.len_bytes,
            }
        }
        Ok(())
    }
}

/// A file of the folder.
struct Chunk {
    path: PathBuf,
    len_bytes: u64,
    used: SystemTime,
}

/// Whether a folder is one of this cache. Other files in the user's folder stay as they are.
fn is_of_a_device(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| uuid::Uuid::try_parse(name).is_ok()) && path.is_dir()
}

/// Another process may remove files meanwhile.
fn files(folder: &Path) -> io::Result<Vec<Chunk>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == seen::NAME {
            continue;
        }
        if let Ok(metadata) = entry.metadata() {
            let used = metadata.modified()?;
            files.push(Chunk { path: entry.path(), len_bytes: metadata.len(), used });
        }
    }
    Ok(files)
}

/// A file's time of modification is that of its last use.
fn note_use(path: &Path) {
    let now = SystemTime::now();
    let is_old = |file: &File| -> io::Result<bool> {
        let used = file.metadata()?.modified()?;
        Ok(now.duration_since(used).is_ok_and(|since| since > USE_TIME))
    };
    // The order of removal is all that suffers from an error.
    if let Ok(file) = File::options().write(true).open(path)
        && let Ok(true) = is_old(&file)
    {
        let _ = file.set_modified(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ObjectId;

    const DEVICE: [u8; 16] = [7; 16];

    fn key(index: u64) -> ChunkKey {
        (ObjectId::new(1, 2), index)
    }

    fn folder(path: &Path, capacity_bytes: u64) -> CacheFolder {
        CacheFolder { path: path.to_owned(), capacity_bytes }
    }

    /// Puts chunks, and waits until they are on the disk.
    fn put(folder: &CacheFolder, chunks: impl IntoIterator<Item = u64>) {
        for index in chunks {
            let cache = DiskCache::open(folder, DEVICE).unwrap();
            cache.put(key(index), Bytes::from(vec![index as u8; 1000]));
        }
    }

    #[test]
    fn chunks_are_there_for_the_next_process() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder(&temporary.path().join("new/cache"), 1 << 20);
        put(&folder, 0..3);
        let cache = DiskCache::open(&folder, DEVICE).unwrap();
        assert_eq!(cache.get(key(2)).unwrap(), vec![2; 1000]);
        assert!(cache.get(key(3)).is_none());
        assert!(DiskCache::open(&folder, [8; 16]).unwrap().get(key(2)).is_none());
    }

    #[test]
    fn damaged_and_exchanged_chunks_are_not_used() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder(temporary.path(), 1 << 20);
        put(&folder, 0..4);
        let cache = DiskCache::open(&folder, DEVICE).unwrap();
        let path = |index| cache.shared.path_of(key(index));
        let mut bytes = fs::read(path(0)).unwrap();
        bytes[500] ^= 1;
        fs::write(path(0), &bytes).unwrap();
        fs::rename(path(1), path(2)).unwrap();
        File::options().write(true).open(path(3)).unwrap().set_len(5).unwrap();
        for index in [0, 2, 3] {
            assert!(cache.get(key(index)).is_none(), "{index}");
            assert!(!path(index).exists(), "{index}");
        }
    }

    #[test]
    fn the_folder_stays_within_its_capacity_and_keeps_what_was_used_last() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder(temporary.path(), 20_000);
        fs::write(temporary.path().join("of the user"), vec![0; 50_000]).unwrap();
        let size = || files(&temporary.path().join(uuid::Uuid::from_bytes(DEVICE).to_string()));
        for index in 0..60 {
            put(&folder, [index]);
            let bytes: u64 = size().unwrap().iter().map(|chunk| chunk.len_bytes).sum();
            assert!(bytes <= 20_000, "{bytes}");
        }
        let cache = DiskCache::open(&folder, DEVICE).unwrap();
        assert!(cache.get(key(0)).is_none());
        assert!((50..60).all(|index| cache.get(key(index)).is_some()));
        assert!(temporary.path().join("of the user").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_left_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("file");
        fs::write(&file, "not a folder").unwrap();
        assert!(DiskCache::open(&folder(&file, 1 << 20), DEVICE).is_none());
    }
}
