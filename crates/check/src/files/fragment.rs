//! What a range of a tree says about one inode.
//!
//! The items of an inode are adjacent in a tree, but a leaf may hold only some of them. A fragment
//! summarizes those; fragments of neighbouring leaves merge; a complete inode is closed, which
//! compares its items with each other.

use larder_format::feature::IncompatFlags;
use larder_format::item::{FileType, InodeFlags, InodeItem};
use larder_format::objectid;

use super::sums::Sums;
use crate::context::Context;
use crate::evidence::{ChecksumEvidence, FileEvidence, InodeEvidence};
use crate::report::Location;

/// The fields of an inode item that are compared with other items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeFacts {
    size: u64,
    nbytes: u64,
    flags: InodeFlags,
    nlink: u32,
    mode: u32,
}

impl From<&InodeItem> for InodeFacts {
    fn from(item: &InodeItem) -> Self {
        Self {
            size: item.size.get(),
            nbytes: item.nbytes.get(),
            flags: item.flags(),
            nlink: item.nlink.get(),
            mode: item.mode.get(),
        }
    }
}

/// The file extents in a range of a tree.
#[derive(Clone, Copy, Debug)]
struct Extents {
    first_start: u64,
    last_end: u64,
    /// The end of the last extent that holds data.
    written_end: u64,
    /// The offset of the first gap between two extents; all ones for none.
    gap: u64,
    count: u32,
    inline: u32,
    inline_bytes: u32,
}

/// What a range of a tree says about one objectid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub(crate) ino: u64,
    /// Some of its items could not be read or parsed: the others prove nothing.
    pub(crate) is_torn: bool,
    pub(crate) inode: Option<InodeFacts>,
    /// Names in INODE_REF and INODE_EXTREF items.
    pub(crate) names: u32,
    /// Entries in DIR_ITEM and DIR_INDEX items.
    pub(crate) entries: u32,
    /// Bytes of these entries' names.
    pub(crate) entry_name_bytes: u64,
    /// Fingerprints of DIR_ITEM entries less those of DIR_INDEX entries.
    pub(crate) entry_balance: u64,
    extents: Option<Extents>,
    /// The right value of nbytes.
    covered_bytes: u64,
    /// Bytes of written extents with and without checksums.
    pub(crate) bytes_with_csum: u64,
    pub(crate) bytes_without_csum: u64,
    /// Bytes of compressed extents.
    pub(crate) compressed_bytes: u64,
}

/// The range of a file that an extent covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Its share of nbytes.
    pub(crate) covered_bytes: u64,
    /// Whether it holds data: neither a hole nor preallocated.
    pub(crate) is_written: bool,
    /// Bytes of data in the item.
    pub(crate) inline_bytes: Option<u32>,
}

impl Fragment {
    pub(crate) fn new(ino: u64) -> Self {
        Self {
            ino,
            is_torn: false,
            inode: None,
            names: 0,
            entries: 0,
            entry_name_bytes: 0,
            entry_balance: 0,
            extents: None,
            covered_bytes: 0,
            bytes_with_csum: 0,
            bytes_without_csum: 0,
            compressed_bytes: 0,
        }
    }

    /// Adds the next file extent.
    pub(crate) fn add_extent(&mut self, context: &Context<'_>, tree: u64, range: ExtentRange) {
        self.covered_bytes = self.covered_bytes.wrapping_add(range.covered_bytes);
        let next = Extents {
            first_start: range.start,
            last_end: range.end,
            written_end: if range.is_written { range.end } else { 0 },
            gap: u64::MAX,
            count: 1,
            inline: u32::from(range.inline_bytes.is_some()),
            inline_bytes: range.inline_bytes.unwrap_or(0),
        };
        self.join_extents(context, tree, &next);
    }

    fn join_extents(&mut self, context: &Context<'_>, tree: u64, next: &Extents) {
        let Some(extents) = &mut self.extents else {
            self.extents = Some(*next);
            return;
        };
        if next.first_start < extents.last_end {
            let (start, previous_end) = (next.first_start, extents.last_end);
            let overlap = FileEvidence::Overlap { start, previous_end };
            context.find(Location::tree(tree).inode(self.ino), overlap);
        }
        let between = if next.first_start > extents.last_end { extents.last_end } else { u64::MAX };
        extents.gap = extents.gap.min(between).min(next.gap);
        extents.last_end = extents.last_end.max(next.last_end);
        extents.written_end = extents.written_end.max(next.written_end);
        extents.count = extents.count.saturating_add(next.count);
        extents.inline = extents.inline.saturating_add(next.inline);
        extents.inline_bytes = extents.inline_bytes.max(next.inline_bytes);
    }

    /// Adds what the next range of the tree says about the same inode.
    pub(crate) fn merge(&mut self, context: &Context<'_>, tree: u64, next: &Self) {
        self.is_torn |= next.is_torn;
        self.inode = self.inode.or(next.inode);
        self.names = self.names.saturating_add(next.names);
        self.entries = self.entries.saturating_add(next.entries);
        self.entry_name_bytes = self.entry_name_bytes.wrapping_add(next.entry_name_bytes);
        self.entry_balance = self.entry_balance.wrapping_add(next.entry_balance);
        self.covered_bytes = self.covered_bytes.wrapping_add(next.covered_bytes);
        self.bytes_with_csum = self.bytes_with_csum.wrapping_add(next.bytes_with_csum);
        self.bytes_without_csum = self.bytes_without_csum.wrapping_add(next.bytes_without_csum);
        self.compressed_bytes = self.compressed_bytes.wrapping_add(next.compressed_bytes);
        if let Some(extents) = &next.extents {
            self.join_extents(context, tree, extents);
        }
    }

    /// Compares the items of a complete inode with each other, and adds to `sums` what they say
    /// about other inodes.
    pub(crate) fn close(&self, context: &Context<'_>, tree: u64, sums: &mut Sums) {
        let is_inode = self.ino <= objectid::LAST_FREE; // Beyond it are orphan items.
        // A log holds only the changed items of an inode.
        if self.is_torn || !is_inode || tree == objectid::TREE_LOG {
            return;
        }
        let location = Location::tree(tree).inode(self.ino);
        let Some(inode) = &self.inode else {
            context.find(location, InodeEvidence::NoInode);
            return;
        };
        if inode.nlink != self.names {
            let (found, expected) = (inode.nlink, self.names);
            context.find(location, InodeEvidence::Links { found, expected });
        }
        if inode.nlink == 0 {
            sums.add_unlinked(context, self.ino);
        }
        let file_type = FileType::from_mode(inode.mode).unwrap_or(FileType::Unknown);
        if self.ino != objectid::FIRST_FREE {
            sums.add_named_inode(context, self.ino, file_type, self.names);
        }
        // An inode that is being deleted loses its items in several transactions.
        let is_going = inode.nlink == 0 || context.is_orphan(tree, self.ino);
        // mkfs.btrfs gives the top directory the size of a block, which means nothing.
        let counts_bytes = file_type != FileType::Directory && !is_going;
        if counts_bytes && inode.nbytes != self.covered_bytes {
            let (found, expected) = (inode.nbytes, self.covered_bytes);
            context.find(location, FileEvidence::Bytes { found, expected });
        }
        if file_type == FileType::Directory {
            if !is_going {
                self.close_directory(context, location, inode);
            }
        } else if self.entries > 0 {
            context.find(location, InodeEvidence::EntriesOfNoDirectory);
        }
        if !is_going {
            self.close_extents(context, location, inode, file_type);
        }
        if file_type == FileType::Regular && tree != objectid::DATA_RELOC_TREE {
            self.close_checksums(context, location, inode);
        }
    }

    fn close_directory(&self, context: &Context<'_>, location: Location, inode: &InodeFacts) {
        if inode.size != self.entry_name_bytes {
            let (found, expected) = (inode.size, self.entry_name_bytes);
            context.find(location, InodeEvidence::DirectorySize { found, expected });
        }
        if self.entry_balance != 0 {
            context.find(location, InodeEvidence::EntriesDiffer);
        }
    }

    fn close_extents(
        &self,
        context: &Context<'_>,
        location: Location,
        inode: &InodeFacts,
        file_type: FileType,
    ) {
        if file_type == FileType::Symlink {
            // mkfs.btrfs ends targets with a zero byte that the size does not count.
            let is_whole = self.extents.is_some_and(|extents| {
                let stored = u64::from(extents.inline_bytes);
                extents.count == 1
                    && (stored == inode.size || stored.checked_sub(1) == Some(inode.size))
            });
            if !is_whole || inode.size == 0 {
                context.find(location, FileEvidence::Target);
            }
            return;
        }
        if file_type != FileType::Regular {
            if self.extents.is_some() {
                context.find(location, InodeEvidence::ExtentsOfNoFile);
            }
            return;
        }
        if context.has(IncompatFlags::NO_HOLES) {
            self.close_size(context, location, inode);
        } else if inode.size > 0 {
            self.close_holes(context, location, inode);
        }
    }

    /// With the no-holes feature, a file's size grows together with its data. (Without it, the size
    /// waits until all data before it is written, too.)
    fn close_size(&self, context: &Context<'_>, location: Location, inode: &InodeFacts) {
        let written_end = self.extents.map_or(0, |extents| extents.written_end);
        let end = inode.size.checked_next_multiple_of(context.sectorsize);
        if end.is_some_and(|end| end < written_end) {
            let (found, data_end) = (inode.size, written_end);
            context.find(location, FileEvidence::Size { found, data_end });
        }
    }

    /// Without the no-holes feature, extents cover the whole file.
    fn close_holes(&self, context: &Context<'_>, location: Location, inode: &InodeFacts) {
        let uncovered = match &self.extents {
            None => 0,
            Some(extents) if extents.first_start > 0 => 0,
            Some(extents) => extents.gap.min(extents.last_end),
        };
        if uncovered < inode.size {
            context.find(location, FileEvidence::Gap { size: inode.size, at: uncovered });
        }
    }

    fn close_checksums(&self, context: &Context<'_>, location: Location, inode: &InodeFacts) {
        if inode.flags.contains(InodeFlags::NODATASUM) {
            if self.bytes_with_csum > 0 {
                let bytes = self.bytes_with_csum;
                context.find(location, ChecksumEvidence::OfFileWithout { bytes });
            }
            if self.compressed_bytes > 0 {
                let bytes = self.compressed_bytes;
                context.find(location, ChecksumEvidence::CompressedWithout { bytes });
            }
        } else if self.bytes_without_csum > 0 {
            let bytes = self.bytes_without_csum;
            context.find(location, ChecksumEvidence::Missing { bytes });
        }
    }
}
