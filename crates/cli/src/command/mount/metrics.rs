//! A file with the metrics of a mount, for a collector.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use larder_fuse::Mount;

use larder_platform::errno::in_words;

use crate::objects::Prices;

/// So often the file is written.
const PAUSE: Duration = Duration::from_secs(5);

/// Collectors run as other users.
const READABLE: u32 = 0o644;

/// Writes the metrics of `mount` to the file `path` now and then, until nobody can send to `ends`
/// any more. Then the file goes: a mount that has ended has no metrics.
pub fn keep_written(mount: &Mount, path: &Path, prices: Prices, ends: &Receiver<()>) {
    let mut is_told = false;
    loop {
        let written = match mount.metrics() {
            Some(metrics) => write(path, &prices.added_to(metrics)),
            None => Ok(()),
        };
        match written {
            Err(error) if !is_told => {
                let (path, error) = (path.display(), in_words(&error));
                tracing::warn!("{path}: the metrics cannot be written: {error}");
                is_told = true;
            }
            Err(_) => {}
            Ok(()) => is_told = false,
        }
        if ends.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    // Nothing else can be done about it here.
    let _ = fs::remove_file(path);
}

/// Replaces the file in one step.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(".larder-metrics-")
        .permissions(Permissions::from_mode(READABLE))
        .tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}
