//! Reading the leaves: references to extents, directories, and the files worth naming.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::mem;

use larder_btree::{Cursor, Readahead, TreeError};
use larder_filesystem::{Error, Filesystem, Result, links_of_item};
use larder_format::item::{FileExtent, InodeItem};
use larder_format::{FormatError, ItemType, Key, Node, objectid, read_exact_item};

use crate::forest::{Forest, Met};
use crate::fragments::{FileFragments, Fragments};
use crate::opened::Opened;
use crate::reference::{CLOSED, Reference};
use crate::root_sets::{RootSets, SetId};
use crate::roots::Roots;
use crate::sorter::{BUFFER_BYTES, Sorted, Sorter};
use crate::stored_as::StoredAs;
use crate::watch::{AccountingPhase, Watch};

/// Most files that are places of their own.
const MOST_FILES: usize = 2000;

/// A directory of an opened tree.
#[derive(Clone, Copy)]
pub(crate) struct FoundDirectory {
    pub(crate) root: u32,
    pub(crate) inode: u64,
    /// The directory that it is in; 0 if it has no name.
    pub(crate) parent: u64,
    /// Files directly in it.
    pub(crate) files: u32,
}

/// A file that is a place of its own. They sort by size, roughly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LargeFile {
    /// About the bytes that it takes on devices.
    estimate: u64,
    pub(crate) root: u32,
    pub(crate) inode: u64,
    /// The directory that has its first name; 0 for none.
    pub(crate) parent: u64,
}

/// Sums over items, each leaf counted once.
#[derive(Default)]
pub(crate) struct Counted {
    /// Bytes of files by set.
    pub(crate) file_bytes: Vec<u64>,
    /// Bytes of files by [`StoredAs::number`], counted for each subvolume.
    pub(crate) referenced: [u64; StoredAs::COUNT],
    /// What is inline, likewise.
    pub(crate) inline: [Inline; StoredAs::COUNT],
}

/// Data that is in leaves.
#[derive(Clone, Copy, Default)]
pub(crate) struct Inline {
    pub(crate) items: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) file_bytes: u64,
    /// Bytes of files, counted for each subvolume.
    pub(crate) referenced_bytes: u64,
}

/// What the leaves say.
pub(crate) struct Leaves {
    pub(crate) references: Sorted<Reference>,
    /// In the order of trees and inodes.
    pub(crate) directories: Vec<FoundDirectory>,
    pub(crate) largest: Vec<LargeFile>,
    pub(crate) fragments: Fragments,
    pub(crate) counted: Counted,
}

struct Reader<'a, 'b> {
    roots: &'a Roots,
    sets: &'a RootSets,
    forest: &'a Forest,
    opened: &'a Opened,
    watch: &'a mut Watch<'b>,
    sorter: Sorter<Reference>,
    directories: Vec<FoundDirectory>,
    largest: BinaryHeap<Reverse<LargeFile>>,
    fragments: Fragments,
    counted: Counted,
    done: u64,
}

/// An inode of an opened tree, as far as its items were read.
#[derive(Default)]
struct Current {
    root: u32,
    inode: u64,
    is_directory: bool,
    /// The directories that have a name of it, each once.
    parents: Vec<u64>,
    /// The reference that items so far make, not yet given away.
    pending: Option<Reference>,
    estimate: u64,
    fragments: FileFragments,
}

impl Leaves {
    pub(crate) fn read(
        filesystem: &Filesystem,
        roots: &Roots,
        sets: &RootSets,
        forest: &Forest,
        opened: &Opened,
        watch: &mut Watch<'_>,
    ) -> Result<Self> {
        let counted = Counted { file_bytes: vec![0; sets.len()], ..Counted::default() };
        let sorter = Sorter::new(BUFFER_BYTES);
        let mut reader = Reader {
            roots,
            sets,
            forest,
            opened,
            watch,
            sorter,
            directories: Vec::new(),
            largest: BinaryHeap::new(),
            fragments: Fragments::default(),
            counted,
            done: 0,
        };
        for (root, _) in roots.subvolumes().filter(|(root, _)| opened.has(*root)) {
            reader.read_opened(root)?;
        }
        reader.read_closed(filesystem)?;
        let Reader { sorter, directories, largest, fragments, counted, .. } = reader;
        let largest = largest.into_iter().map(|Reverse(file)| file).collect();
        Ok(Self { references: sorter.sorted()?, directories, largest, fragments, counted })
    }
}

impl Reader<'_, '_> {
    /// Reads a tree in the order of its keys.
    fn read_opened(&mut self, root: u32) -> Result<()> {
        let first_directory = self.directories.len();
        let mut files: HashMap<u64, u32> = HashMap::new();
        let mut current = Current::default();
        let mut cursor = self.roots.all[root as usize].tree.cursor(Readahead::ForwardAlways);
        let mut moved = cursor.next();
        while self.is_at_leaf(&mut cursor, moved)? {
            let Some(leaf) = cursor.leaf().cloned() else { break };
            let set = self.forest.leaves.get(&leaf.logical().0).map_or(0, |leaf| leaf.set);
            let is_first = set != 0 && self.opened.first(set) == Some(root);
            for (key, bytes) in leaf.node().iter_items() {
                if key.objectid != current.inode {
                    self.end_inode(mem::take(&mut current), &mut files)?;
                    (current.root, current.inode) = (root, key.objectid);
                }
                if let Err(problem) = self.add_item(&mut current, set, is_first, key, bytes)? {
                    self.watch.note(&Error::item(self.roots.id(root), key, problem));
                }
            }
            moved = cursor.next_leaf();
        }
        self.end_inode(current, &mut files)?;
        for directory in &mut self.directories[first_directory..] {
            directory.files = files.get(&directory.inode).copied().unwrap_or(0);
        }
        Ok(())
    }

    /// Whether the cursor, which has `moved`, is at a leaf; goes past those that cannot be read.
    fn is_at_leaf(
        &mut self,
        cursor: &mut Cursor,
        mut moved: Result<bool, TreeError>,
    ) -> Result<bool> {
        self.tell()?;
        loop {
            match moved {
                Ok(is_there) => return Ok(is_there),
                Err(error) => self.watch.note(&error.into()),
            }
            moved = cursor.skip_subtree();
        }
    }

    fn tell(&mut self) -> Result<()> {
        self.done += 1;
        let total = self.forest.leaves.len() as u64;
        self.watch.tell(AccountingPhase::Files, self.done.min(total), total)
    }

    /// Reads the leaves that only closed trees have.
    fn read_closed(&mut self, filesystem: &Filesystem) -> Result<()> {
        let is_closed = |leaf: &Met| self.opened.first(leaf.set).is_none();
        let leaves = self.forest.leaves.iter().filter(|(_, leaf)| is_closed(leaf));
        let mut leaves: Vec<(u64, Met)> = leaves.map(|(logical, leaf)| (*logical, *leaf)).collect();
        leaves.sort_unstable_by_key(|(logical, _)| *logical);
        for (logical, leaf) in leaves {
            self.tell()?;
            match filesystem.cache().read(&leaf.expected(self.roots, logical, 0)) {
                Ok(fetched) => self.read_closed_leaf(leaf.set, fetched.block.node())?,
                Err(error) => self.watch.note(&error.into()),
            }
        }
        Ok(())
    }

    fn read_closed_leaf(&mut self, set: SetId, leaf: Node<'_>) -> Result<()> {
        let mut current = Current { root: CLOSED, ..Current::default() };
        for (key, bytes) in leaf.iter_items() {
            if key.objectid != current.inode {
                self.give(&mut current)?;
                current.inode = key.objectid;
            }
            // A checked leaf has no extent that cannot be parsed.
            if key.item_type == ItemType::EXTENT_DATA
                && let Ok(extent) = FileExtent::parse(bytes)
            {
                self.add_extent(&mut current, set, true, key, &extent)?;
            }
        }
        self.give(&mut current)
    }

    /// Adds an item of an opened tree; `is_first` if its leaf is read for the first time.
    fn add_item(
        &mut self,
        current: &mut Current,
        set: SetId,
        is_first: bool,
        key: Key,
        bytes: &[u8],
    ) -> Result<Result<(), FormatError>> {
        let parsed = match key.item_type {
            ItemType::INODE_ITEM => read_exact_item::<InodeItem>(bytes).map(|item| {
                current.is_directory = item.mode.get() & libc_mode::TYPE == libc_mode::DIRECTORY;
            }),
            ItemType::INODE_REF | ItemType::INODE_EXTREF => {
                links_of_item(key, bytes, |parent, _, _| {
                    if !current.parents.contains(&parent) {
                        current.parents.push(parent);
                    }
                })
            }
            ItemType::EXTENT_DATA => match FileExtent::parse(bytes) {
                Ok(extent) => {
                    self.add_extent(current, set, is_first, key, &extent)?;
                    Ok(())
                }
                Err(problem) => Err(problem),
            },
            _ => Ok(()),
        };
        Ok(parsed)
    }

    fn add_extent(
        &mut self,
        current: &mut Current,
        set: SetId,
        is_first: bool,
        key: Key,
        item: &FileExtent<'_>,
    ) -> Result<()> {
        let subvolumes = self.sets.count_below(set, self.roots.subvolumes);
        let (extent, ram_bytes, stored_as) = match item {
            FileExtent::Inline { header, data } => {
                if is_first {
                    let stored_as = StoredAs::of_item(header.compression, false);
                    let inline = &mut self.counted.inline[usize::from(stored_as.number())];
                    inline.items += 1;
                    inline.stored_bytes += data.len() as u64;
                    inline.file_bytes += header.ram_bytes.get();
                    inline.referenced_bytes += header.ram_bytes.get().saturating_mul(subvolumes);
                }
                return Ok(());
            }
            FileExtent::Regular { header, extent, preallocated } => {
                let stored_as = StoredAs::of_item(header.compression, *preallocated);
                (extent, header.ram_bytes.get(), stored_as)
            }
        };
        let Some(address) = extent.disk_bytenr() else { return Ok(()) };
        let (file_bytes, disk_bytes) = (extent.num_bytes.get(), extent.disk_num_bytes.get());
        if is_first {
            let by_set = &mut self.counted.file_bytes[set as usize];
            *by_set = by_set.saturating_add(file_bytes);
            let referenced = &mut self.counted.referenced[usize::from(stored_as.number())];
            *referenced = referenced.saturating_add(file_bytes.saturating_mul(subvolumes));
        }
        current.fragments.add(key.offset, extent, stored_as);
        let share = u128::from(disk_bytes) * u128::from(file_bytes) / u128::from(ram_bytes.max(1));
        current.estimate = current.estimate.saturating_add(share as u64);
        let reference = Reference {
            extent: address.0,
            root: current.root,
            set,
            inode: current.inode,
            directory: current.parents.first().copied().unwrap_or(0),
            file_bytes,
            disk_bytes,
            ram_bytes,
            stored_as: stored_as.number(),
            is_further_name: 0,
            unused: [0; 6],
        };
        match &mut current.pending {
            // Parts of one extent often follow each other.
            Some(before) if Reference { file_bytes: before.file_bytes, ..reference } == *before => {
                before.file_bytes = before.file_bytes.saturating_add(file_bytes);
                Ok(())
            }
            _ => {
                self.give(current)?;
                current.pending = Some(reference);
                Ok(())
            }
        }
    }

    /// Gives the pending reference to the sorter: once for each directory that has the file.
    fn give(&mut self, current: &mut Current) -> Result<()> {
        let Some(reference) = current.pending.take() else { return Ok(()) };
        self.sorter.push(reference)?;
        for directory in current.parents.iter().skip(1) {
            let (directory, file_bytes, is_further_name) = (*directory, 0, 1);
            self.sorter.push(Reference { directory, file_bytes, is_further_name, ..reference })?;
        }
        Ok(())
    }

    fn end_inode(&mut self, mut current: Current, files: &mut HashMap<u64, u32>) -> Result<()> {
        self.give(&mut current)?;
        let Current { root, inode, is_directory, parents, estimate, fragments, .. } = current;
        if !(objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&inode) {
            return Ok(());
        }
        let parent = parents.first().copied().unwrap_or(0);
        if is_directory {
            self.directories.push(FoundDirectory { root, inode, parent, files: 0 });
            return Ok(());
        }
        *files.entry(parent).or_default() += 1;
        if fragments.extents > 0 {
            self.fragments.add(root, inode, fragments);
            let file = Reverse(LargeFile { estimate, root, inode, parent });
            if self.largest.len() < MOST_FILES {
                self.largest.push(file);
            } else if self.largest.peek().is_some_and(|least| file < *least) {
                self.largest.pop();
                self.largest.push(file);
            }
        }
        Ok(())
    }
}

/// The type in an inode's mode.
mod libc_mode {
    pub(crate) const TYPE: u32 = 0o170_000;
    pub(crate) const DIRECTORY: u32 = 0o040_000;
}
