//! Copying trees of files of this machine, some of which lie on mounts of larder.

mod walked;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use larder_copy::{Destination, Keep, below};
use larder_platform::HostTree;
use rustix::fs::FileType;

use crate::copying::{ended, shown};
use crate::on_mount;
use crate::progress::Progress;

/// Copies to one destination.
pub struct Ingest<'a> {
    copies: larder_copy::Ingest<'a>,
    /// Files with several names that the server of their mount read, by subvolume and number.
    walked: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
    /// Failures that servers reported.
    unread: usize,
}

impl<'a> Ingest<'a> {
    /// Copies the trees at `sources`: a terminal can show how much is left.
    pub fn new(destination: &'a mut dyn Destination, keep: Keep, sources: &[OsString]) -> Self {
        let sources: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
        let progress = Progress::of_bytes().counting(move || Some(bytes_in(&sources)));
        Self {
            copies: larder_copy::Ingest::new(destination, keep, shown(progress)),
            walked: HashMap::new(),
            buffer: Vec::new(),
            unread: 0,
        }
    }

    /// Copies the tree at `source` to `target`. Errors are reported on standard error, and the copy
    /// goes on. A signal that is [watched](crate::interrupt::watch) for ends it.
    pub fn copy(&mut self, source: &Path, target: &Path) -> anyhow::Result<()> {
        let copied = match self.copy_walked(source, target) {
            Ok(false) => self.copies.copy(source, target),
            walked => walked.map(drop),
        };
        ended(copied, self.copies.course()).map(drop)
    }

    /// How many errors were reported.
    pub fn failures(&mut self) -> usize {
        let failures = self.copies.course().failures();
        usize::try_from(failures).unwrap_or(usize::MAX).saturating_add(self.unread)
    }
}

/// The bytes of all files in some trees, as far as they can be read.
fn bytes_in(sources: &[PathBuf]) -> u64 {
    sources.iter().filter_map(|source| bytes_below(source).ok()).sum()
}

fn bytes_below(source: &Path) -> io::Result<u64> {
    let (mut tree, start) = HostTree::containing(source)?;
    let mut bytes = 0;
    let mut waiting = vec![start.clone()];
    while let Some(path) = waiting.pop() {
        let Ok(status) = tree.status(&path) else { continue };
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => bytes += status.st_size as u64,
            FileType::Directory => {
                let shown = below(source, path.strip_prefix(&start).unwrap_or(&path));
                match on_mount::count_bytes(&shown) {
                    Some(below) => bytes += below,
                    None => {
                        let names = tree.names(&path).unwrap_or_default();
                        waiting.extend(names.iter().map(|name| path.join(name)));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(bytes)
}
