//! The last state of each device that this machine has seen: who brings back an older one is found
//! out.
//!
//! ```text
//!   FOLDER/DEVICE/seen      EPOCH STATE
//! ```
//! It lies in the folder of the cache, so that it may be missing, and then tells nothing.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use larder_platform::errno::in_words;

use crate::head;
use crate::manifest::Manifest;
use crate::options::{CacheFolder, Options};
use crate::store::Store;

pub(crate) const NAME: &str = "seen";

/// The epoch of a device and the number of its state. Both only grow, unless somebody sets the store
/// back.
type Point = (u32, u64);

fn point(manifest: &Manifest) -> Point {
    (manifest.epoch, manifest.state().number)
}

/// Where this machine notes what it has seen of one device.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    path: PathBuf,
}

impl Seen {
    /// That of the device with this manifest in `store`, after a comparison. `None` if `options`
    /// have no folder.
    pub(crate) fn compared(
        options: &Options,
        store: &dyn Store,
        manifest: &Manifest,
    ) -> Option<Self> {
        let seen = Self::of(options.cache.as_ref()?, manifest.uuid);
        seen.compare(store, manifest);
        Some(seen)
    }

    fn of(folder: &CacheFolder, uuid: [u8; 16]) -> Self {
        let device = uuid::Uuid::from_bytes(uuid).as_hyphenated().to_string();
        Self { path: folder.path.join(device).join(NAME) }
    }

    /// Warns if this machine has seen the device in `store` at a later point than that of
    /// `manifest`.
    pub(crate) fn compare(&self, store: &dyn Store, manifest: &Manifest) {
        let now = point(manifest);
        let Some(last) = self.last().filter(|last| *last > now) else { return self.note(now) };
        // Another process of this machine may have gone on meanwhile.
        let Ok(manifest) = head::read(store) else { return };
        let (epoch, state) = point(&manifest);
        if last > (epoch, state) {
            tracing::warn!(
                "{}: it is at state {state} of epoch {epoch}, and was at state {} of epoch {} when \
                 this machine saw it last: somebody has set it back. If that is right, remove {}",
                store.name(),
                last.1,
                last.0,
                self.path.display()
            );
        }
    }

    /// Notes what a writer has made of the device.
    pub(crate) fn note_last(&self, manifest: &Manifest) {
        let now = point(manifest);
        if self.last().is_none_or(|last| last < now) {
            self.note(now);
        }
    }

    fn note(&self, (epoch, state): Point) {
        let write = || {
            let folder = self.path.parent().expect("it lies in a folder");
            larder_platform::create_private_folders(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            write!(file, "{epoch} {state}")?;
            file.persist(&self.path)?;
            Ok::<_, std::io::Error>(())
        };
        // It is no reason to refuse anything.
        if let Err(error) = write() {
            tracing::debug!("{}: {}", self.path.display(), in_words(&error));
        }
    }

    fn last(&self) -> Option<Point> {
        let text = fs::read_to_string(&self.path).ok()?;
        let (epoch, state) = text.split_once(' ')?;
        Some((epoch.parse().ok()?, state.parse().ok()?))
    }
}
