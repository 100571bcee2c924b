//! Walking through everything below a directory.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::directory::entries::Entries;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::inode::Inode;
use crate::item::metadata::FileType;

/// Something below a directory.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// Its path from the directory.
    pub path: PathBuf,
    /// Its inode.
    pub inode: Inode,
}

/// Iterates over everything below a directory, subvolumes too: a directory comes before its entries,
/// which come in the order in which they were made. After an error the walk goes on with what is
/// left. Depth costs no stack.
#[derive(Debug)]
pub struct Walk {
    /// The directories from the first to the current one.
    frames: Vec<Frame>,
    /// The same, by subvolume and number: a damaged file system may have a directory inside itself.
    above: HashSet<(u64, u64)>,
    /// All directories so far, if the reference that names a directory may be lost: then several
    /// names may lead to one.
    entered: Option<HashSet<(u64, u64)>>,
    /// The error of the first directory.
    failed: Option<Error>,
}

#[derive(Debug)]
struct Frame {
    id: (u64, u64),
    path: PathBuf,
    entries: Entries,
}

impl Walk {
    pub(super) fn below(directory: &Directory) -> Self {
        let (frames, above) = Default::default();
        let entered = directory.may_lack_index().then(HashSet::new);
        let mut walk = Self { frames, above, entered, failed: None };
        walk.failed = walk.enter(PathBuf::new(), directory).err();
        walk
    }

    fn enter(&mut self, path: PathBuf, directory: &Directory) -> Result<()> {
        let id = (directory.subvolume_id(), directory.number());
        if self.above.contains(&id) {
            return Err(Error::Invalid("a directory that is inside itself").about(&path));
        }
        let is_known = |entered: &mut HashSet<(u64, u64)>| {
            !directory.is_empty_subvolume() && !entered.insert(id)
        };
        if self.entered.as_mut().is_some_and(is_known) {
            return Err(Error::Invalid("a directory that was met before").about(&path));
        }
        let entries = directory.entries()?;
        self.above.insert(id);
        self.frames.push(Frame { id, path, entries });
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        loop {
            let frame = self.frames.last_mut()?;
            let Some(entry) = frame.entries.next() else {
                let id = frame.id;
                self.frames.pop();
                self.above.remove(&id);
                continue;
            };
            let opened = entry.and_then(|entry| {
                let path = larder_platform::join(&frame.path, entry.name());
                Ok(WalkEntry { inode: entry.open()?, path })
            });
            let WalkEntry { path, inode } = match opened {
                Ok(opened) => opened,
                Err(error) => return Some(Err(error)),
            };
            if inode.file_type() == FileType::Directory {
                let directory = inode.clone().into_directory();
                // What is in it cannot be read; the directory itself could.
                self.failed =
                    directory.and_then(|directory| self.enter(path.clone(), &directory)).err();
            }
            return Some(Ok(WalkEntry { path, inode }));
        }
    }
}
