//! Logs after a power cut.

use larder::OpenOptions;

use crate::Image;

/// The cache that the file system is opened with.
const CACHE_BYTES: usize = 1 << 20;

/// Opens `image`, which has logs after a power cut, for writing, with patches from `bytes` in the
/// logs. If they can be replayed, commits must work.
pub fn log_replay(image: &Image, bytes: &[u8]) {
    let options = OpenOptions::new().write(true).commit_interval(None).cache_bytes(CACHE_BYTES);
    let Ok(fs) = options.open_devices(vec![image.with_patched_log(bytes)]) else { return };
    let _ = fs.subvolume("/").and_then(|top| top.create("after-the-replay", 0o644));
    fs.sync().expect("no log breaks the file system");
}
