//! Work on disks: scrubs, balances, conversions, and devices that go, are replaced or get smaller.

mod beside_kernel;
mod growth;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use crate::measure::{Run, drop_caches};

pub use beside_kernel::Disks;
pub use growth::DiskGrowth;

/// One kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Scrub,
    Balance,
    Convert,
    Remove,
    Replace,
    Shrink,
}

impl Work {
    const ALL: [Self; 6] =
        [Self::Scrub, Self::Balance, Self::Convert, Self::Remove, Self::Replace, Self::Shrink];

    fn name(self) -> &'static str {
        match self {
            Self::Scrub => "scrub",
            Self::Balance => "full balance",
            Self::Convert => "convert to raid1",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::Shrink => "shrink",
        }
    }

    /// Whether the file system has an empty second device when it begins.
    fn needs_second(self) -> bool {
        matches!(self, Self::Convert | Self::Remove)
    }

    /// The command line for a file system at `place`: `other` is a device that is not one of its own,
    /// and `len_bytes` what its only device is to have after it gets smaller.
    fn arguments(self, place: &OsStr, other: &OsStr, len_bytes: u64) -> Vec<OsString> {
        let size = len_bytes.to_string();
        let words: &[&str] = match self {
            Self::Scrub => &["scrub", "start", "-B"],
            Self::Balance => &["balance", "start", "--full-balance"],
            Self::Convert => &["balance", "start", "-dconvert=raid1", "-mconvert=raid1"],
            Self::Remove => &["device", "remove", "1"],
            Self::Replace => &["replace", "start", "-f", "-B", "1"],
            Self::Shrink => &["filesystem", "resize", &size],
        };
        let other = (self == Self::Replace).then_some(other);
        words.iter().map(OsStr::new).chain(other).chain([place]).map(OsStr::to_owned).collect()
    }

    /// Does it with cold caches.
    fn run(
        self,
        program: &Path,
        place: &OsStr,
        other: &OsStr,
        len_bytes: u64,
    ) -> anyhow::Result<Run> {
        drop_caches()?;
        Run::of(program, self.arguments(place, other, len_bytes))
    }
}

/// A copy of an image that stays sparse, and an empty file beside it that is as long.
struct Copied {
    image: PathBuf,
    other: PathBuf,
}

impl Copied {
    fn new(image: &Path) -> anyhow::Result<Self> {
        let copy = image.with_extension("copy");
        let copied = Self { other: image.with_extension("other"), image: copy };
        let mut command = Command::new("cp");
        command.arg("--sparse=always").arg(image).arg(&copied.image);
        ensure!(command.status()?.success(), "{command:?} failed");
        File::create(&copied.other)?.set_len(image.metadata()?.len())?;
        Ok(copied)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        for path in [&self.image, &self.other] {
            // The scratch folder goes too.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Adds a device, which is not measured.
fn add(program: &Path, device: &OsStr, place: &OsStr) -> anyhow::Result<()> {
    let words = ["device", "add", "-f"].map(OsStr::new);
    Run::of(program, words.into_iter().chain([device, place])).map(drop)
}
