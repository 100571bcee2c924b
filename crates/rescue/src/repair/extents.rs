//! File extents that say something impossible: one field of each made right again by what else
//! tells it.
//!
//! The extent tree has the length of each extent, and which file refers to it from where; the next
//! file extent, or the size of the file, says where one ends. The length of an inline extent is that
//! of its item.
//!
//! # Invariants
//! - An item changes only if the extent tree, or its own length, proves the outcome, and all that
//!   fields in doubt may be leads to one outcome.

use std::collections::{BTreeMap, BTreeSet};

use larder_check::{Kind, Report};
use larder_format::item::{
    BackRef, Extent, FileExtentHeader, FileExtentItem, InodeItem, RegularExtent,
};
use larder_format::objectid::EXTENT_TREE;
use larder_format::{ItemType, Key};
use zerocopy::{FromBytes, IntoBytes};

use super::block::Blocks;
use super::commit::{State, each_item};
use super::update::Edits;

/// Compressions that there are.
const COMPRESSIONS: std::ops::RangeInclusive<u8> = 0..=3;

/// A data extent in the extent tree.
#[derive(Default)]
struct Known {
    len_bytes: u64,
    /// Inode and offset of the files that refer to it.
    by: BTreeSet<(u64, u64)>,
    /// Whether leaves refer to it, whose files it does not name.
    is_shared: bool,
}

/// The data extents in the extent tree, by start.
pub(super) struct Extents {
    known: BTreeMap<u64, Known>,
    /// Whether the extent tree is there as a whole.
    pub(super) is_whole: bool,
}

impl Extents {
    /// Reads the extent tree.
    pub(super) fn read(blocks: &Blocks<'_>, state: &State) -> Self {
        let mut known: BTreeMap<u64, Known> = BTreeMap::new();
        let root = state.root(EXTENT_TREE);
        let mut visit = |key: Key, data: &[u8]| match key.item_type {
            ItemType::EXTENT_ITEM => {
                let Ok(extent) = Extent::parse(key, data) else { return };
                if extent.is_tree_block() {
                    return;
                }
                let known = known.entry(key.objectid).or_default();
                known.len_bytes = key.offset;
                for reference in extent.back_refs().flatten() {
                    known.add(&reference.back_ref);
                }
            }
            ItemType::EXTENT_DATA_REF | ItemType::SHARED_DATA_REF => {
                if let Ok(reference) = BackRef::parse_keyed(key, data) {
                    known.entry(key.objectid).or_default().add(&reference);
                }
            }
            _ => {}
        };
        let is_whole = root.is_some_and(|root| each_item(blocks, EXTENT_TREE, root, &mut visit));
        Self { known, is_whole }
    }

    /// Whether a file extent may be one that the extent tree knows of.
    pub(super) fn may_have(&self, key: Key, extent: &RegularExtent) -> bool {
        let start = key.offset.wrapping_sub(extent.offset.get());
        self.known.get(&extent.disk_bytenr.get()).is_some_and(|known| {
            known.len_bytes == extent.disk_num_bytes.get()
                && (known.is_shared || known.by.contains(&(key.objectid, start)))
        })
    }
}

/// What the extent tree says, and which items are in doubt.
pub(super) struct Doubts {
    items: BTreeSet<(u64, u64)>,
    extents: Extents,
}

impl Doubts {
    /// Those that findings name; `None` if there are none.
    pub(super) fn of(report: &Report, blocks: &Blocks<'_>, state: &State) -> Option<Self> {
        let groups = report.kinds.iter().filter(|group| may_be_of_extent(group.kind));
        let findings = groups.flat_map(|group| &group.findings);
        let keys = findings.filter_map(|finding| finding.location.key);
        let keys = keys.filter(|key| key.item_type == ItemType::EXTENT_DATA);
        let items: BTreeSet<(u64, u64)> = keys.map(|key| (key.objectid, key.offset)).collect();
        if items.is_empty() {
            return None;
        }
        let extents = Extents::read(blocks, state);
        Some(Self { items, extents })
    }

    /// The changes of a tree, by key with the old items.
    pub(super) fn mend(&self, blocks: &Blocks<'_>, tree: u64, state: &State) -> Edits {
        let (mut edits, mut inline) = (Edits::new(), Edits::new());
        let Some(root) = state.root(tree) else { return edits };
        // The file extent before, in doubt, waits for the next one or the end of the file.
        let mut waiting: Option<(Key, FileExtentItem)> = None;
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        let sectorsize = u64::from(blocks.volume.sectorsize());
        let mut visit = |key: Key, data: &[u8]| {
            let next = (key.item_type == ItemType::EXTENT_DATA).then_some(key);
            if let Some((at, item)) = waiting.take() {
                let end = match next.filter(|next| next.objectid == at.objectid) {
                    Some(next) => Some(next.offset),
                    None => sizes.get(&at.objectid).map(|it| it.next_multiple_of(sectorsize)),
                };
                if let Some(mended) = self.mended(at, &item, end, sectorsize) {
                    edits.insert(at, Some(mended.as_bytes().to_vec()));
                }
            }
            if key.item_type == ItemType::INODE_ITEM {
                let item = InodeItem::read_from_bytes(data);
                sizes.extend(item.map(|item| (key.objectid, item.size.get())));
            }
            if next.is_some() && self.items.contains(&(key.objectid, key.offset)) {
                match FileExtentItem::read_from_bytes(data) {
                    Ok(item) => waiting = Some((key, item)),
                    Err(_) => inline.extend(mended_inline(data).map(|it| (key, Some(it)))),
                }
            }
        };
        each_item(blocks, tree, root, &mut visit);
        visit(Key::MAX, &[]);
        edits.extend(inline);
        edits
    }

    /// The one item that is right and differs in one field.
    fn mended(
        &self,
        key: Key,
        item: &FileExtentItem,
        end: Option<u64>,
        sectorsize: u64,
    ) -> Option<FileExtentItem> {
        let is_right = |item: &FileExtentItem| self.is_right(key, item, end, sectorsize);
        if is_right(item) {
            return None;
        }
        let mut right: Vec<FileExtentItem> = Vec::new();
        for candidate in self.candidates(key, item, end) {
            if is_right(&candidate) && !right.contains(&candidate) {
                right.push(candidate);
            }
        }
        match right[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// What the item may have been.
    fn candidates(&self, key: Key, item: &FileExtentItem, end: Option<u64>) -> Vec<FileExtentItem> {
        let start = key.offset.wrapping_sub(item.extent.offset.get());
        let mut candidates = Vec::new();
        let mut add = |change: &dyn Fn(&mut FileExtentItem)| {
            let mut candidate = *item;
            change(&mut candidate);
            candidates.push(candidate);
        };
        for (bytenr, known) in &self.extents.known {
            if known.by.contains(&(key.objectid, start)) {
                add(&|it| it.extent.disk_bytenr = (*bytenr).into());
            }
        }
        if let Some(known) = self.extents.known.get(&item.extent.disk_bytenr.get()) {
            add(&|it| it.extent.disk_num_bytes = known.len_bytes.into());
            for (_, start) in known.by.iter().filter(|(ino, _)| *ino == key.objectid) {
                add(&|it| it.extent.offset = key.offset.wrapping_sub(*start).into());
            }
        }
        if let Some(end) = end {
            add(&|it| it.extent.num_bytes = end.saturating_sub(key.offset).into());
        }
        add(&|it| it.header.ram_bytes = it.extent.disk_num_bytes);
        for compression in COMPRESSIONS {
            add(&|it| it.header.compression = compression);
        }
        add(&|it| it.header.encryption = 0);
        add(&|it| it.header.other_encoding = 0.into());
        candidates
    }

    /// Whether the item is possible, and the extent tree knows of it.
    fn is_right(&self, key: Key, item: &FileExtentItem, end: Option<u64>, sectorsize: u64) -> bool {
        let FileExtentItem { header, extent } = item;
        let (offset, bytes) = (extent.offset.get(), extent.num_bytes.get());
        let Some(known) = self.extents.known.get(&extent.disk_bytenr.get()) else { return false };
        let within = offset.checked_add(bytes);
        known.len_bytes == extent.disk_num_bytes.get()
            && known.by.contains(&(key.objectid, key.offset.wrapping_sub(offset)))
            && COMPRESSIONS.contains(&header.compression)
            && match header.compression {
                0 => header.ram_bytes == extent.disk_num_bytes,
                // Data that gets no shorter is not stored compressed.
                _ => header.ram_bytes > extent.disk_num_bytes,
            }
            && (header.encryption, header.other_encoding.get()) == (0, 0)
            && (1..=2).contains(&header.kind)
            && [offset, bytes].iter().all(|it| it.is_multiple_of(sectorsize))
            && bytes > 0
            && within.is_some_and(|within| within <= header.ram_bytes.get())
            && end.is_none_or(|end| key.offset.checked_add(bytes).is_some_and(|to| to <= end))
    }
}

/// An inline extent with the one field of its header set right that makes it say how much data it
/// has, not compressed.
fn mended_inline(data: &[u8]) -> Option<Vec<u8>> {
    let (header, content) = FileExtentHeader::read_from_prefix(data).ok()?;
    let len = content.len() as u64;
    let is_right = |header: &FileExtentHeader| {
        let encoded = (header.compression, header.encryption, header.other_encoding.get());
        header.kind == 0 && encoded == (0, 0, 0) && header.ram_bytes.get() == len
    };
    let mut candidates = [header; 5];
    candidates[0].ram_bytes = len.into();
    candidates[1].compression = 0;
    candidates[2].encryption = 0;
    candidates[3].other_encoding = 0.into();
    candidates[4].kind = 0;
    let mended = candidates.iter().find(|it| is_right(it) && !is_right(&header))?;
    Some([mended.as_bytes(), content].concat())
}

impl Known {
    fn add(&mut self, reference: &BackRef) {
        match *reference {
            BackRef::Data { objectid, offset, .. } => drop(self.by.insert((objectid, offset))),
            BackRef::SharedData { .. } => self.is_shared = true,
            _ => {}
        }
    }
}

/// Whether findings of a kind may be about file extents that say something impossible.
fn may_be_of_extent(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FileExtent
            | Kind::FileExtentOverlap
            | Kind::InlineExtent
            | Kind::CompressedData
            | Kind::ExtentMismatch
            | Kind::ExtentMissing
            | Kind::ExtentOutsideBlockGroup
            | Kind::BackReferenceMissing
    )
}
