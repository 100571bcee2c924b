//! Logs that a power cut left.

use larder::OpenOptions;

use crate::Image;

/// The cache that the file system is opened with.
const CACHE_BYTES: usize = 1 << 20;

/// Opens `image`, which a power cut left with logs, for writing, with patches from `bytes` in them. What can be
/// replayed can be committed and gone on with.
pub fn log_replay(image: &Image, bytes: &[u8]) {
    let options = OpenOptions::new().write(true).commit_interval(None).cache_bytes(CACHE_BYTES);
    let Ok(fs) = options.open_devices(vec![image.with_patched_log(bytes)]) else { return };
    let _ = fs.subvolume("/").and_then(|top| top.create("after-the-replay", 0o644));
    fs.sync().expect("what a log says breaks no file system");
}
