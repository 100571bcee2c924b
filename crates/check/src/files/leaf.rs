//! One leaf of a tree of files: checks every item and makes the leaf's summary.

use larder_format::item::{
    DirEntries, DirEntry, FileType, InodeExtrefs, InodeItem, InodeRefs, NAME_MAX,
    VerityDescriptorItem, XATTR_NAME_MAX,
};
use larder_format::{FormatError, ItemType, Key, Node, name_hash, objectid, read_exact_item};

use super::fragment::InodeFacts;
use super::inode_item;
use super::summary::Summary;
use super::sums::Link;
use crate::blocks::{ExpectedBlock, Item};
use crate::checksums::{ChecksumRanges, item_range};
use crate::context::Context;
use crate::evidence::{Evidence, ItemEvidence};
use crate::extents::{ExtentTable, LeafReferences};

/// 0 and 1 are those of "." and "..".
const FIRST_DIR_INDEX: u64 = 2;

/// Checks leaves. They depend on extents and checksums, which are known before.
#[derive(Clone, Copy)]
pub(crate) struct LeafInspector<'c, 'v> {
    pub(crate) context: &'c Context<'v>,
    /// `None` for log trees, which refer to extents that are not yet in these trees.
    pub(crate) space: Option<(&'c ExtentTable, &'c ChecksumRanges)>,
}

impl LeafInspector<'_, '_> {
    /// Checks every item of a leaf and reports the problems.
    pub(crate) fn summarize(&self, wanted: &ExpectedBlock, node: &Node<'_>) -> Summary {
        let mut summary = Summary::default();
        let owner = node.header().owner.get();
        let references = self
            .space
            .map(|(extents, _)| LeafReferences::new(self.context, extents, wanted.logical, owner));
        for (key, data) in node.iter_items() {
            let item = Item { tree: wanted.tree, leaf: wanted.logical, key, data };
            let mut view =
                ItemView { inspector: self, item, references: &references, summary: &mut summary };
            if view.inspect().is_none() {
                let (fragment, _) = summary.fragment(self.context, wanted.tree, key.objectid);
                fragment.is_torn = true;
                summary.is_incomplete = true;
            }
        }
        summary
    }
}

/// An item being checked. Methods return `None` when it is so bad that nothing follows from it.
pub(super) struct ItemView<'l, 'c, 'v> {
    pub(super) inspector: &'l LeafInspector<'c, 'v>,
    pub(super) item: Item<'l>,
    pub(super) references: &'l Option<LeafReferences<'c, 'v>>,
    pub(super) summary: &'l mut Summary,
}

impl ItemView<'_, '_, '_> {
    fn inspect(&mut self) -> Option<()> {
        let key = self.item.key;
        let is_inode = (objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&key.objectid);
        match key.item_type {
            ItemType::ORPHAN_ITEM => self.orphan(),
            ItemType::EXTENT_CSUM if self.item.tree == objectid::TREE_LOG => self.checksums(),
            _ if !is_inode => {
                self.find(ItemEvidence::NoInode { objectid: key.objectid });
                None
            }
            ItemType::INODE_ITEM => self.inode(),
            ItemType::INODE_REF => self.inode_refs(),
            ItemType::INODE_EXTREF => self.inode_extrefs(),
            ItemType::XATTR_ITEM => self.xattrs(),
            ItemType::DIR_ITEM => self.dir_items(),
            ItemType::DIR_INDEX => self.dir_index(),
            ItemType::EXTENT_DATA => self.file_extent(),
            ItemType::VERITY_DESC_ITEM => self.verity_descriptor(),
            ItemType::VERITY_MERKLE_ITEM => Some(()),
            ItemType::DIR_LOG_INDEX | ItemType::DIR_LOG_ITEM
                if self.item.tree == objectid::TREE_LOG =>
            {
                self.sized(size_of::<larder_format::item::DirLogItem>())
            }
            other => {
                self.find(ItemEvidence::UnexpectedOfFiles { found: other });
                Some(())
            }
        }
    }

    pub(super) fn context(&self) -> &Context<'_> {
        self.inspector.context
    }

    pub(super) fn find(&self, evidence: impl Into<Evidence>) {
        self.item.find(self.inspector.context, evidence);
    }

    fn sized(&self, expected: usize) -> Option<()> {
        let found = self.item.data.len();
        if found == expected {
            return Some(());
        }
        self.find(ItemEvidence::Len { found, expected });
        None
    }

    /// Passes a parsed value on and reports an error.
    pub(super) fn parsed<T>(&self, result: Result<T, FormatError>) -> Option<T> {
        let find = |error: &FormatError| self.find(ItemEvidence::Format { problem: error.clone() });
        result.inspect_err(find).ok()
    }

    fn key_offset_is(&self, expected: u64) {
        if self.item.key.offset != expected {
            self.find(ItemEvidence::Offset { expected });
        }
    }

    /// Checks a checksum item of logged data.
    fn checksums(&self) -> Option<()> {
        item_range(self.inspector.context, &self.item)
            .inspect_err(|problem| self.find(problem.clone()))
            .ok()
            .map(drop)
    }

    fn orphan(&mut self) -> Option<()> {
        let Key { objectid, offset, .. } = self.item.key;
        if objectid != objectid::ORPHAN {
            self.find(ItemEvidence::OrphanObjectid);
            return None;
        }
        self.sized(0)?;
        let (_, sums) = self.summary.fragment(self.inspector.context, self.item.tree, objectid);
        sums.add_orphan_item(self.inspector.context, offset);
        Some(())
    }

    fn inode(&mut self) -> Option<()> {
        let inode = self.parsed(read_exact_item::<InodeItem>(self.item.data))?;
        self.key_offset_is(0);
        inode_item::check(self.inspector.context, &self.item, inode);
        let (fragment, _) = self.fragment();
        fragment.inode = Some(InodeFacts::from(inode));
        Some(())
    }

    pub(super) fn fragment(&mut self) -> (&mut super::fragment::Fragment, &mut super::sums::Sums) {
        let ino = self.item.key.objectid;
        self.summary.fragment(self.inspector.context, self.item.tree, ino)
    }

    fn inode_refs(&mut self) -> Option<()> {
        let parent = self.item.key.offset;
        self.not_empty()?;
        for name in InodeRefs::new(self.item.data) {
            let name = self.parsed(name)?;
            self.reference(parent, name.index, name.name)?;
        }
        Some(())
    }

    fn inode_extrefs(&mut self) -> Option<()> {
        self.not_empty()?;
        for name in InodeExtrefs::new(self.item.data) {
            let name = self.parsed(name)?;
            let hash = name_hash::extended_ref(name.parent, name.name);
            if hash != self.item.key.offset {
                self.find(ItemEvidence::NameHash { expected: hash });
            }
            self.reference(name.parent, name.index, name.name)?;
        }
        Some(())
    }

    fn reference(&mut self, directory: u64, index: u64, name: &[u8]) -> Option<()> {
        let (context, target) = (self.inspector.context, self.item.key.objectid);
        if directory == target {
            self.name_len(name, NAME_MAX)?;
        } else {
            self.file_name(name)?;
        }
        let (fragment, sums) = self.fragment();
        fragment.names = fragment.names.saturating_add(1);
        if directory != target {
            sums.add_reference(context, &Link { directory, index, name, target });
            return Some(());
        }
        // The root directory refers to itself, which no entry names.
        if (target, index, name) != (objectid::FIRST_FREE, 0, b"..") {
            self.find(ItemEvidence::ReferenceToItself);
        }
        Some(())
    }

    fn not_empty(&self) -> Option<()> {
        if self.item.data.is_empty() {
            self.find(ItemEvidence::Empty);
            return None;
        }
        Some(())
    }

    /// Checks a name of a directory entry.
    fn file_name(&self, name: &[u8]) -> Option<()> {
        self.name_len(name, NAME_MAX)?;
        if let Some(problem) = name_problem(name) {
            self.find(ItemEvidence::Name { problem });
        }
        Some(())
    }

    fn name_len(&self, name: &[u8], most: usize) -> Option<()> {
        if name.is_empty() || name.len() > most {
            self.find(ItemEvidence::NameLen { found: name.len() });
            return None;
        }
        Some(())
    }

    fn xattrs(&mut self) -> Option<()> {
        self.not_empty()?;
        for entry in DirEntries::new(self.item.data) {
            let entry = self.parsed(entry)?;
            self.name_len(entry.name, XATTR_NAME_MAX)?;
            self.hashed(entry.name);
            let location = entry.header.location.get();
            if entry.file_type() != FileType::Xattr || location != Key::MIN {
                self.find(ItemEvidence::XattrPointsTo { found: location });
            }
        }
        self.names_differ();
        self.fragment();
        Some(())
    }

    /// Checks that no two entries under one hash have the same name.
    fn names_differ(&self) {
        let entries = || DirEntries::new(self.item.data).flatten();
        if entries().nth(1).is_none() {
            return;
        }
        let mut names: Vec<&[u8]> = entries().map(|entry| entry.name).collect();
        names.sort_unstable();
        for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
            let name = String::from_utf8_lossy(pair[0]).into_owned();
            self.find(ItemEvidence::DuplicateName { name });
        }
    }

    fn hashed(&self, name: &[u8]) {
        let hash = name_hash::dir_name(name);
        if hash != self.item.key.offset {
            self.find(ItemEvidence::NameHash { expected: hash });
        }
    }

    fn dir_items(&mut self) -> Option<()> {
        self.not_empty()?;
        for entry in DirEntries::new(self.item.data) {
            let entry = self.parsed(entry)?;
            self.entry(&entry)?;
            self.hashed(entry.name);
            let fact = self.entry_fingerprint(&entry);
            let (fragment, _) = self.fragment();
            fragment.entry_balance = fragment.entry_balance.wrapping_add(fact);
        }
        self.names_differ();
        Some(())
    }

    fn entry_fingerprint(&self, entry: &DirEntry<'_>) -> u64 {
        let fingerprints = &self.inspector.context.fingerprints;
        let location = entry.header.location.get();
        let name = fingerprints.of_bytes(entry.name);
        let kinds = u64::from(location.item_type.0) << 8 | u64::from(entry.header.file_type);
        fingerprints.of(0, [name, location.objectid, kinds])
    }

    /// The checks that entries by hash and by index share.
    fn entry(&mut self, entry: &DirEntry<'_>) -> Option<()> {
        self.file_name(entry.name)?;
        let location = entry.header.location.get();
        let file_type = FileType::from_disk(entry.header.file_type);
        let is_sane = match location.item_type {
            ItemType::INODE_ITEM => {
                let is_type =
                    !matches!(file_type, None | Some(FileType::Unknown | FileType::Xattr));
                location.offset == 0 && is_type
            }
            ItemType::ROOT_ITEM => {
                let is_directory = file_type == Some(FileType::Directory);
                objectid::is_subvolume(location.objectid) && is_directory
            }
            _ => false,
        };
        if !is_sane || !entry.data.is_empty() {
            let (file_type, data_bytes) = (entry.header.file_type, entry.data.len());
            self.find(ItemEvidence::Entry { file_type, target: location, data_bytes });
        }
        let name_len = entry.name.len() as u64;
        let (fragment, _) = self.fragment();
        fragment.entries = fragment.entries.saturating_add(1);
        fragment.entry_name_bytes += name_len;
        Some(())
    }

    fn dir_index(&mut self) -> Option<()> {
        let mut entries = DirEntries::new(self.item.data);
        let Some(entry) = entries.next() else { return self.not_empty() };
        let entry = self.parsed(entry)?;
        if entries.next().is_some() {
            self.find(ItemEvidence::SeveralEntries);
            return None;
        }
        self.entry(&entry)?;
        if self.item.key.offset < FIRST_DIR_INDEX {
            self.find(ItemEvidence::IndexTooLow { expected: FIRST_DIR_INDEX });
        }
        let fact = self.entry_fingerprint(&entry);
        let location = entry.header.location.get();
        let link = Link {
            directory: self.item.key.objectid,
            index: self.item.key.offset,
            name: entry.name,
            target: location.objectid,
        };
        let context = self.inspector.context;
        let (fragment, sums) = self.fragment();
        fragment.entry_balance = fragment.entry_balance.wrapping_sub(fact);
        if location.item_type == ItemType::ROOT_ITEM {
            sums.add_subvolume_entry(context, &link);
        } else {
            sums.add_entry(context, &link, entry.file_type());
        }
        Some(())
    }

    fn verity_descriptor(&mut self) -> Option<()> {
        if self.item.key.offset == 0 {
            self.sized(size_of::<VerityDescriptorItem>())?;
        }
        self.fragment();
        Some(())
    }
}

/// Why no directory may have a name.
pub(crate) fn name_problem(name: &[u8]) -> Option<&'static str> {
    if matches!(name, b"" | b"." | b"..") {
        Some("an empty name, \".\" or \"..\"")
    } else if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        Some("a name with a zero byte or a slash")
    } else {
        None
    }
}
