//! Filling subvolumes: takes over the outputs of workers in order, assigns addresses and fills
//! trees.

use std::ops::Range;

use larder_format::compression::Algorithm;
use larder_format::item::{
    FileExtentHeader, FileExtentItem, FileExtentKind, MAX_EXTENT_BYTES, RegularExtent,
};
use larder_format::{ItemType, Key, Logical};
use zerocopy::{FromZeros, IntoBytes};

use crate::MkfsError;
use crate::checksums::ChecksumTree;
use crate::content::{
    BufferPool, Context, Jobs, Output, Piece, Record, Worker, directory_items, ordered,
};
use crate::image::{ExtentRecord, Image};
use crate::settings::GENERATION;
use crate::source::{Source, Subvolume};
use crate::tree::{TreeBuilder, TreeRoot};

/// The result of filling a subvolume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    pub(crate) root: TreeRoot,
    /// Bytes of its data extents, as stored.
    pub(crate) data_bytes: u64,
}

/// Builds the tree of one subvolume and writes its data.
pub(crate) fn populate(
    image: &mut Image<'_>,
    checksums: &mut ChecksumTree,
    source: &Source,
    subvolume: &Subvolume,
    buffers: &BufferPool,
) -> Result<Filled, MkfsError> {
    let settings = image.settings;
    let context = Context { settings, subvolume, buffers };
    let tree = TreeBuilder::new(subvolume.id, settings.node_size);
    let mut filler =
        Filler { image, checksums, source, subvolume, tree, pending: None, data_bytes: 0 };
    ordered(
        Jobs::new(context),
        settings.threads,
        || Worker::new(context),
        Worker::run,
        |output| filler.take_over(output?),
    )?;
    filler.finish()
}

/// A file extent that may still grow.
#[derive(Clone, Copy, Debug)]
struct PendingExtent {
    inode: u64,
    file_offset: u64,
    logical: u64,
    len_bytes: u64,
}

struct Filler<'a, 'i> {
    image: &'a mut Image<'i>,
    checksums: &'a mut ChecksumTree,
    source: &'a Source,
    subvolume: &'a Subvolume,
    tree: TreeBuilder,
    /// The last file extent, if it is not compressed: the file's next data may follow it.
    pending: Option<PendingExtent>,
    data_bytes: u64,
}

impl Filler<'_, '_> {
    fn take_over(&mut self, output: Output) -> Result<(), MkfsError> {
        let Output { records, item_bytes, data, data_len, compression_used, checksums } = output;
        self.image.compression_used |= compression_used;
        let (mut parts, mut summed) = (Vec::new(), Vec::new());
        let (mut item_at, mut data_at) = (0, 0);
        for record in records {
            match record {
                Record::Item { key, len } => {
                    self.end_extent()?;
                    self.tree.push(key, &item_bytes[item_at..item_at + len], self.image)?;
                    item_at += len;
                }
                Record::Entries { node } => {
                    self.end_extent()?;
                    let (settings, tree, image) =
                        (self.image.settings, &mut self.tree, &mut *self.image);
                    let mut emit = |key, data: &[u8]| tree.push(key, data, image);
                    directory_items(self.source, self.subvolume, node, settings, &mut emit)?;
                }
                Record::Extent { inode, piece, is_summed } => {
                    let mut placed = Vec::new();
                    self.place(inode, piece, data_at, &mut placed)?;
                    for (logical, part) in placed {
                        if is_summed {
                            add_part(&mut summed, logical.0, part.clone());
                        }
                        add_part(&mut parts, logical.0, part);
                    }
                    data_at += piece.disk_bytes as usize;
                }
            }
        }
        debug_assert!(item_at == item_bytes.len() && data_at == data_len);
        self.add_checksums(&summed, &checksums)?;
        if data.is_empty() { Ok(()) } else { self.image.write_data(data, parts) }
    }

    /// Assigns addresses to a piece. `parts` gets the addresses of the parts of the data buffer.
    fn place(
        &mut self,
        inode: u64,
        piece: Piece,
        data_at: usize,
        parts: &mut Vec<(Logical, Range<usize>)>,
    ) -> Result<(), MkfsError> {
        let mut done = 0;
        while done < piece.disk_bytes {
            let left = piece.disk_bytes - done;
            let least = match piece.compression {
                Some(_) => left,
                None => self.image.settings.sector_size as u64,
            };
            let range = self.image.allocate_data(left, least)?;
            let (logical, len_bytes) = (range.start, range.end - range.start);
            let start = data_at + done as usize;
            add_part(parts, logical, start..start + len_bytes as usize);
            self.data_bytes += len_bytes;
            if let Some(algorithm) = piece.compression {
                self.compressed_extent(inode, piece, algorithm, logical)?;
            } else {
                let file_offset = piece.file_offset + done;
                self.extend(PendingExtent { inode, file_offset, logical, len_bytes })?;
            }
            done += len_bytes;
        }
        Ok(())
    }

    /// Merges an extent with the pending one if it follows it in the file and on disk.
    fn extend(&mut self, next: PendingExtent) -> Result<(), MkfsError> {
        match &mut self.pending {
            Some(pending)
                if pending.inode == next.inode
                    && pending.file_offset + pending.len_bytes == next.file_offset
                    && pending.logical + pending.len_bytes == next.logical
                    && pending.len_bytes + next.len_bytes <= MAX_EXTENT_BYTES =>
            {
                pending.len_bytes += next.len_bytes;
                Ok(())
            }
            _ => {
                self.end_extent()?;
                self.pending = Some(next);
                Ok(())
            }
        }
    }

    /// Adds the item of the pending extent.
    fn end_extent(&mut self) -> Result<(), MkfsError> {
        let Some(PendingExtent { inode, file_offset, logical, len_bytes }) = self.pending.take()
        else {
            return Ok(());
        };
        let (num_bytes, disk_bytes) = (len_bytes, len_bytes);
        let piece = Piece { file_offset, num_bytes, disk_bytes, compression: None };
        self.extent_item(inode, piece, 0, logical)
    }

    fn compressed_extent(
        &mut self,
        inode: u64,
        piece: Piece,
        algorithm: Algorithm,
        logical: u64,
    ) -> Result<(), MkfsError> {
        self.end_extent()?;
        self.extent_item(inode, piece, algorithm.to_disk(), logical)
    }

    fn extent_item(
        &mut self,
        inode: u64,
        piece: Piece,
        compression: u8,
        logical: u64,
    ) -> Result<(), MkfsError> {
        let item = FileExtentItem {
            header: FileExtentHeader {
                generation: GENERATION.into(),
                ram_bytes: piece.num_bytes.into(),
                compression,
                kind: FileExtentKind::Regular as u8,
                ..FileExtentHeader::new_zeroed()
            },
            extent: RegularExtent {
                disk_bytenr: logical.into(),
                disk_num_bytes: piece.disk_bytes.into(),
                offset: 0.into(),
                num_bytes: piece.num_bytes.into(),
            },
        };
        self.image.extents.push(ExtentRecord {
            logical: Logical(logical),
            len_bytes: piece.disk_bytes as u32,
            root: self.subvolume.id,
            inode,
            file_offset: piece.file_offset,
        });
        let key = Key::new(inode, ItemType::EXTENT_DATA, piece.file_offset);
        self.tree.push(key, item.as_bytes(), self.image)
    }

    fn add_checksums(
        &mut self,
        parts: &[(Logical, Range<usize>)],
        checksums: &[u8],
    ) -> Result<(), MkfsError> {
        let settings = self.image.settings;
        let sum_at = |at: usize| at / settings.sector_size * settings.checksum.size();
        parts.iter().try_for_each(|(logical, part)| {
            let sums = &checksums[sum_at(part.start)..sum_at(part.end)];
            self.checksums.push(*logical, sums, self.image)
        })
    }

    fn finish(mut self) -> Result<Filled, MkfsError> {
        self.end_extent()?;
        let root = self.tree.finish(self.image)?;
        Ok(Filled { root, data_bytes: self.data_bytes })
    }
}

/// Adds a part of the buffer for `logical`, and merges it with the last one if they are adjacent.
fn add_part(parts: &mut Vec<(Logical, Range<usize>)>, logical: u64, part: Range<usize>) {
    match parts.last_mut() {
        Some((start, last)) if last.end == part.start && start.0 + last.len() as u64 == logical => {
            last.end = part.end;
        }
        _ => parts.push((Logical(logical), part)),
    }
}
