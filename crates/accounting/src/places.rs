//! The places that hold data, as a tree: directories, subvolumes and the largest files.

use std::collections::HashMap;

use larder_format::objectid::{FIRST_FREE, FS_TREE};

use crate::leaves::{FoundDirectory, LargeFile};
use crate::opened::Opened;
use crate::reference::Reference;
use crate::roots::Roots;
use crate::sums::add;

/// Number of a place.
pub(crate) type PlaceId = u32;

/// All data; the place above all others.
pub(crate) const EVERYTHING: PlaceId = 0;
/// Subvolumes that are being deleted.
pub(crate) const DELETED: PlaceId = 1;
/// Trees that are no subvolumes.
pub(crate) const INTERNAL: PlaceId = 2;
/// Files and directories to which no name leads.
pub(crate) const UNNAMED: PlaceId = 3;
/// The places of subvolumes follow, by the numbers of their trees; then directories, then files.
pub(crate) const FIRST_ROOT: PlaceId = 4;

/// A place, and what it holds.
#[derive(Clone, Copy)]
pub(crate) struct PlaceSums {
    pub(crate) root: u32,
    pub(crate) parent: PlaceId,
    pub(crate) inode: u64,
    /// Places above it.
    pub(crate) depth: u32,
    /// Files directly in it; later all below it.
    pub(crate) files: u32,
    /// The extent that was counted last, and the one that was counted last for files of its own.
    counted: u64,
    loose_counted: u64,
    /// Bytes of extents that anything below refers to.
    pub(crate) disk_bytes: u64,
    /// Bytes of extents whose deepest common place this is; later those of all below it.
    pub(crate) exclusive_bytes: u64,
    /// The same for the files directly in it that are no places.
    pub(crate) loose_disk_bytes: u64,
    pub(crate) loose_exclusive_bytes: u64,
    /// Bytes of files directly in it; later of all below it.
    pub(crate) file_bytes: u64,
    /// The same of files whose extents no other file has.
    pub(crate) unshared_file_bytes: u64,
}

/// All places.
pub(crate) struct Places {
    pub(crate) all: Vec<PlaceSums>,
    /// Where directories and files begin.
    first_directory: usize,
    pub(crate) first_file: usize,
    files: HashMap<(u32, u64), PlaceId>,
}

/// No extent is here.
const NONE: u64 = 0;
/// The depth of a place that is being found.
const IN_PROGRESS: u32 = u32::MAX;

impl PlaceSums {
    fn new(root: u32, inode: u64) -> Self {
        Self {
            root,
            parent: EVERYTHING,
            inode,
            depth: 0,
            files: 0,
            counted: NONE,
            loose_counted: NONE,
            disk_bytes: 0,
            exclusive_bytes: 0,
            loose_disk_bytes: 0,
            loose_exclusive_bytes: 0,
            file_bytes: 0,
            unshared_file_bytes: 0,
        }
    }
}

impl Places {
    /// `directories` are in the order of trees and inodes.
    pub(crate) fn new(
        roots: &Roots,
        opened: &Opened,
        directories: Vec<FoundDirectory>,
        largest: Vec<LargeFile>,
    ) -> Self {
        let mut all: Vec<PlaceSums> =
            (0..FIRST_ROOT).map(|_| PlaceSums::new(u32::MAX, 0)).collect();
        all.extend((0..roots.subvolumes).map(|root| PlaceSums::new(root, FIRST_FREE)));
        let first_directory = all.len();
        let mut parents = Vec::new();
        for FoundDirectory { root, inode, parent, files } in directories {
            if inode == FIRST_FREE {
                all[(FIRST_ROOT + root) as usize].files = files;
            } else {
                all.push(PlaceSums { files, ..PlaceSums::new(root, inode) });
                parents.push(parent);
            }
        }
        let first_file = all.len();
        let mut places = Self { all, first_directory, first_file, files: HashMap::new() };
        for (number, parent) in parents.into_iter().enumerate() {
            let id = first_directory + number;
            places.all[id].parent = places.directory(places.all[id].root, parent);
        }
        for (root, info) in roots.subvolumes() {
            let parent = info.name.as_ref().and_then(|name| {
                let parent =
                    roots.number(name.parent).filter(|parent| *parent < roots.subvolumes)?;
                let is_opened = opened.has(parent);
                let within = is_opened.then(|| places.directory(parent, name.directory));
                Some(within.unwrap_or(FIRST_ROOT + parent))
            });
            let lost = if info.id == FS_TREE { EVERYTHING } else { UNNAMED };
            places.all[(FIRST_ROOT + root) as usize].parent = parent.unwrap_or(lost);
        }
        for LargeFile { root, inode, parent, .. } in largest {
            let parent = places.directory(root, parent);
            places.files.insert((root, inode), places.all.len() as PlaceId);
            places.all.push(PlaceSums { parent, ..PlaceSums::new(root, inode) });
        }
        places.find_depths();
        places
    }

    /// The place of a directory of an opened subvolume.
    fn directory(&self, root: u32, inode: u64) -> PlaceId {
        if inode == FIRST_FREE {
            return FIRST_ROOT + root;
        }
        let directories = &self.all[self.first_directory..self.first_file];
        let found =
            directories.binary_search_by_key(&(root, inode), |place| (place.root, place.inode));
        found.map_or(UNNAMED, |number| (self.first_directory + number) as PlaceId)
    }

    /// The place where an opened subvolume has a reference: the file, or the directory.
    pub(crate) fn of_reference(&self, reference: &Reference) -> PlaceId {
        let own = self.files.get(&(reference.root, reference.inode));
        match own {
            Some(file) if reference.is_further_name == 0 => *file,
            _ => self.directory(reference.root, reference.directory),
        }
    }

    /// Finds the depth of each place, from the top. What hangs in a loop of a damaged tree, and in
    /// no other place, is unnamed.
    fn find_depths(&mut self) {
        let mut path: Vec<PlaceId> = Vec::new();
        for special in [DELETED, INTERNAL, UNNAMED] {
            self.all[special as usize].depth = 1;
        }
        for start in FIRST_ROOT..self.all.len() as PlaceId {
            let mut at = start;
            while at != EVERYTHING && self.all[at as usize].depth == 0 {
                self.all[at as usize].depth = IN_PROGRESS;
                path.push(at);
                let parent = self.all[at as usize].parent;
                if self.all[parent as usize].depth == IN_PROGRESS {
                    self.all[at as usize].parent = UNNAMED;
                }
                at = self.all[at as usize].parent;
            }
            let mut depth = self.all[at as usize].depth;
            while let Some(below) = path.pop() {
                depth += 1;
                self.all[below as usize].depth = depth;
            }
        }
    }

    /// Adds the bytes of an extent to a place and to each place above it, once to each.
    pub(crate) fn count(&mut self, start: PlaceId, extent: u64, disk_bytes: u64) {
        let mut at = start;
        loop {
            let place = &mut self.all[at as usize];
            if place.counted == extent {
                return;
            }
            place.counted = extent;
            add(&mut place.disk_bytes, disk_bytes);
            if at == EVERYTHING {
                return;
            }
            at = place.parent;
        }
    }

    /// Counts an extent for files directly in a directory that are no places.
    pub(crate) fn count_loose(&mut self, id: PlaceId, extent: u64, disk_bytes: u64) {
        let place = &mut self.all[id as usize];
        if (id as usize) < self.first_file && place.loose_counted != extent {
            place.loose_counted = extent;
            add(&mut place.loose_disk_bytes, disk_bytes);
        }
    }

    /// The deepest place that both are in.
    pub(crate) fn common(&self, mut a: PlaceId, mut b: PlaceId) -> PlaceId {
        while a != b {
            let (place, other) = (&self.all[a as usize], &self.all[b as usize]);
            if place.depth >= other.depth {
                a = place.parent;
            } else {
                b = other.parent;
            }
        }
        a
    }

    /// Adds what places hold to those above them, from the bottom.
    pub(crate) fn sum_up(&mut self) {
        let mut order: Vec<PlaceId> = (1..self.all.len() as PlaceId).collect();
        order.sort_unstable_by_key(|id| std::cmp::Reverse(self.all[*id as usize].depth));
        for id in order {
            let below = self.all[id as usize];
            let above = &mut self.all[below.parent as usize];
            add(&mut above.exclusive_bytes, below.exclusive_bytes);
            add(&mut above.file_bytes, below.file_bytes);
            add(&mut above.unshared_file_bytes, below.unshared_file_bytes);
            above.files = above.files.saturating_add(below.files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places with these parents after the fixed ones, which hang in place 0.
    fn places(parents: &[PlaceId]) -> Places {
        let fixed = (0..FIRST_ROOT).map(|_| PlaceSums::new(0, 0));
        let others =
            parents.iter().map(|parent| PlaceSums { parent: *parent, ..PlaceSums::new(0, 0) });
        let all: Vec<PlaceSums> = fixed.chain(others).collect();
        let first_file = all.len();
        let mut places = Places { all, first_directory: 4, first_file, files: HashMap::new() };
        places.find_depths();
        places
    }

    #[test]
    fn an_extent_counts_once_above_and_alone_where_all_references_meet() {
        // 4 has 5 and 6, and 5 has 7 and 8.
        let mut places = places(&[0, 4, 4, 5, 5]);
        assert_eq!(places.common(7, 8), 5);
        assert_eq!(places.common(7, 6), 4);
        assert_eq!(places.common(7, 5), 5);
        for start in [7, 8, 7] {
            places.count(start, 4096, 10);
        }
        let counted: Vec<u64> = places.all.iter().map(|place| place.disk_bytes).collect();
        assert_eq!(counted, [10, 0, 0, 0, 10, 10, 0, 10, 10]);
        places.all[5].exclusive_bytes = 10;
        places.sum_up();
        let alone: Vec<u64> = places.all.iter().map(|place| place.exclusive_bytes).collect();
        assert_eq!(alone, [10, 0, 0, 0, 10, 10, 0, 0, 0]);
    }

    #[test]
    fn a_loop_of_directories_is_unnamed() {
        let places = places(&[0, 6, 7, 5, 7]);
        let at = |mut id: PlaceId| {
            let mut path = vec![id];
            while id != EVERYTHING {
                id = places.all[id as usize].parent;
                path.push(id);
                assert!(path.len() < 10, "{path:?}");
            }
            path
        };
        assert_eq!(at(5), [5, 6, 7, UNNAMED, EVERYTHING]);
        assert_eq!(at(8), [8, 7, UNNAMED, EVERYTHING]);
        assert_eq!(at(4), [4, EVERYTHING]);
        assert_eq!(places.all[5].depth, 4);
    }
}
