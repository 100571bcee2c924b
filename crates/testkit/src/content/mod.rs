//! A deterministic filler: the same seed and scale give the same tree, except for the times at
//! which the kernel made it. It only makes ordinary system calls on a mounted btrfs.
//!
//! Each chapter fills its own folder, so that the path of a difference tells its cause.

mod attributes;
mod data;
mod links;
mod many;
mod names;
mod power_cut;
mod sharing;
mod sparse;
mod subvolumes;
mod write;
mod xattrs;

use std::io;
use std::path::Path;

pub(crate) use power_cut::PowerCut;

use crate::random::Random;

/// The amount of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A few MiB and some hundred names: built in a second.
    Small,
    /// A directory of 100,000 entries and a file of 20,000 extents besides.
    Large,
}

/// The content for a file system.
#[derive(Clone, Debug)]
pub struct Content {
    seed: u64,
    directory_entries: u32,
    colliding_names: u32,
    file_extents: u32,
    without_checksums: bool,
}

type Chapter = fn(&Path, &mut Random, &Content) -> io::Result<()>;

/// Data comes before its clones; snapshots come last and have everything before them.
const CHAPTERS: [(&str, Chapter); 9] = [
    ("data", data::fill),
    ("sparse", sparse::fill),
    ("sharing", sharing::fill),
    ("links", links::fill),
    ("names", names::fill),
    ("attributes", attributes::fill),
    ("xattrs", xattrs::fill),
    ("many", many::fill),
    ("subvolumes", subvolumes::fill),
];

impl Content {
    /// Content of [`Scale::Small`].
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            directory_entries: 300,
            colliding_names: 12,
            file_extents: 200,
            without_checksums: true,
        }
    }

    /// Sets the scale.
    #[must_use]
    pub fn scale(self, scale: Scale) -> Self {
        let (entries, colliding, extents) = match scale {
            Scale::Small => (300, 12, 200),
            Scale::Large => (100_000, 200, 20_000),
        };
        self.directory_entries(entries).colliding_names(colliding).file_extents(extents)
    }

    /// Entries of the large directory, besides those whose hashes collide.
    #[must_use]
    pub fn directory_entries(mut self, count: u32) -> Self {
        self.directory_entries = count;
        self
    }

    /// Entries of the large directory that share one name hash, as many as fit a leaf.
    #[must_use]
    pub fn colliding_names(mut self, count: u32) -> Self {
        self.colliding_names = count;
        self
    }

    /// Extents of the file of many extents, at least 2.
    #[must_use]
    pub fn file_extents(mut self, count: u32) -> Self {
        self.file_extents = count;
        self
    }

    /// Leaves out files without checksums: no reader can tell their good copies from bad ones, so
    /// they read differently once a device is damaged.
    #[must_use]
    pub fn all_checksummed(mut self) -> Self {
        self.without_checksums = false;
        self
    }

    /// Fills the mounted btrfs at `root`. Panics if the kernel refuses a call unexpectedly.
    #[track_caller]
    pub fn fill(&self, root: &Path) {
        for (number, (name, chapter)) in (0..).zip(CHAPTERS) {
            self.fill_chapter(&root.join(name), number, name, chapter);
        }
    }

    /// Fills the existing folder `folder` with files of many sizes only.
    #[track_caller]
    pub fn fill_data(&self, folder: &Path) {
        self.fill_chapter(&folder.join("data"), 100, "data", data::fill);
    }

    #[track_caller]
    fn fill_chapter(&self, folder: &Path, number: u64, name: &str, chapter: Chapter) {
        let mut random = Random::new(self.seed ^ (number << 32));
        std::fs::create_dir(folder)
            .and_then(|()| chapter(folder, &mut random, self))
            .unwrap_or_else(|error| panic!("filling {name} at {}: {error}", folder.display()));
    }
}
