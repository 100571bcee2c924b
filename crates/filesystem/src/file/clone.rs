//! Reflinks: ranges of files that share extents, and copies that share what they can.
//!
//! # Invariants
//! - While two files come to share a part, no other thread changes either or writes it back: the
//!   target gets what the source has.
//! - A file without checksums shares only with other such files.
//! - An inline extent is never shared: its data is copied.

use larder_format::feature::IncompatFlags;
use larder_format::item::{FileExtentItem, InodeFlags};
use larder_transaction::Handle;

use crate::change::changeable::Changeable;
use crate::change::file_change::{FileChange, StillFile};
use crate::error::{Error, Result};
use crate::extents::items::Stored;
use crate::file::read_live::Need;
use crate::file::write::{MOST_BYTES, WriteAs};
use crate::handle::file::File;
use crate::live::inode::LiveInode;
use crate::operation::data_reservation::{DataNeed, reserve_within_quota};
use crate::writeback::flush::write_back;
use crate::xattr::capability::drop_capability;

/// Extents that are shared in one transaction.
const SHARED_PER_STEP: u64 = 16;
/// Bytes that are compared in one transaction.
const COMPARED_BYTES: u64 = 1 << 20;
/// Data that cannot be shared is copied in pieces of this size.
const COPIED_BYTES: u64 = 1 << 20;
/// How a caller writes without having opened the file for it.
const UNOPENED: WriteAs = WriteAs { is_open: false, sets_times: true };

/// A range of a file that will share the extents of another file, or of the same.
#[derive(Clone, Copy)]
struct Share<'a> {
    source: &'a File,
    target: &'a File,
    source_offset: u64,
    target_offset: u64,
    len_bytes: u64,
    why: Why,
}

/// What two files share extents for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The target changes: its times are set, and it loses its capability.
    Change,
    /// The target is new, and keeps the attributes that it has.
    New,
    /// Both have the same bytes already. Otherwise they share nothing.
    Equal,
}

/// A part of a range that is shared in one transaction.
struct Part {
    /// In whole sectors.
    len_bytes: u64,
    /// The source's extents, each with its offset in the target. Between them are holes.
    extents: Vec<(u64, FileExtentItem)>,
    /// The source's first sector, if it is inline, and its offset in the target.
    inline: Option<(u64, Vec<u8>)>,
}

impl File {
    /// Makes `len_bytes` of this regular file from `offset` on share the extents of `source` from
    /// `source_offset` on. `source` may be the same file or lie in another subvolume. A `len_bytes`
    /// of 0 means up to the end of `source`. Offsets and length are whole sectors, except for a
    /// range that ends with `source` and does not end within this file.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), `EXDEV` for another file system, and `EINVAL` for a range
    /// that is not as above, that goes past the end of `source`, that overlaps itself, or if only
    /// one file has checksums. After `ENOSPC` or `EIO` a first part may be shared.
    pub fn clone_range(
        &self,
        source: &File,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<()> {
        let share = Share {
            source,
            target: self,
            source_offset,
            target_offset: offset,
            len_bytes,
            why: Why::Change,
        };
        share.run().map(drop)
    }

    /// Makes this new, empty file share all extents of `source`. Its attributes stay.
    ///
    /// # Errors
    /// As [`clone_range`](Self::clone_range).
    #[doc(hidden)]
    pub fn clone_as_new(&self, source: &File) -> Result<()> {
        let (source_offset, target_offset, len_bytes) = (0, 0, 0);
        let why = Why::New;
        Share { source, target: self, source_offset, target_offset, len_bytes, why }.run().map(drop)
    }

    /// As [`clone_range`](Self::clone_range), if both ranges have the same bytes. Both lie within
    /// their files, and a partial sector at the end is left out unless both files end there.
    /// Returns how many bytes are shared now: none if they differ. Times stay.
    pub fn dedupe_range(
        &self,
        source: &File,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<Option<u64>> {
        let share = Share {
            source,
            target: self,
            source_offset,
            target_offset: offset,
            len_bytes,
            why: Why::Equal,
        };
        share.run()
    }

    /// Copies up to `len_bytes` of `source` from `source_offset` on to this regular file, at
    /// `offset`, and shares extents where it can. Returns how many bytes were copied: fewer than
    /// asked for only at the end of `source`.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), and `EINVAL` for a range that overlaps itself.
    pub fn copy_range(
        &self,
        source: &File,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
    ) -> Result<u64> {
        self.copy_as(source, source_offset, len_bytes, offset, UNOPENED)
    }

    pub(crate) fn copy_as(
        &self,
        source: &File,
        source_offset: u64,
        len_bytes: u64,
        offset: u64,
        how: WriteAs,
    ) -> Result<u64> {
        let sectorsize = self.core().sectorsize();
        let len_bytes = len_bytes.min(source.size_bytes().saturating_sub(source_offset));
        let end = offset.checked_add(len_bytes).filter(|end| *end <= MOST_BYTES);
        let end = end.ok_or(Error::FileTooLarge)?;
        let source_end = source_offset + len_bytes;
        if self == source && offset < source_end && source_offset < end {
            return Err(Error::Invalid("a range that overlaps itself"));
        }
        let head_bytes = (offset.next_multiple_of(sectorsize) - offset).min(len_bytes);
        let copy = |from: u64, to: u64| {
            self.copy_bytes(source, source_offset + from, to - from, offset + from, how)
        };
        if source_offset % sectorsize != offset % sectorsize {
            copy(0, len_bytes)?;
            return Ok(len_bytes);
        }
        let ends_both = source_end >= source.size_bytes() && end >= self.size_bytes();
        let tail_bytes = if ends_both { 0 } else { (len_bytes - head_bytes) % sectorsize };
        let tail = len_bytes - tail_bytes;
        copy(0, head_bytes)?;
        if head_bytes < tail {
            let (from, to) = (source_offset + head_bytes, offset + head_bytes);
            match self.clone_range(source, from, tail - head_bytes, to) {
                // One of them has no checksums, or another size by now.
                Err(Error::Invalid(_)) => copy(head_bytes, tail)?,
                // It was opened before: it shares nothing any more, and can be written to.
                Err(Error::ReadOnlySubvolume | Error::NotPermitted(_)) if how.is_open => {
                    copy(head_bytes, tail)?;
                }
                cloned => cloned?,
            }
        }
        copy(tail, len_bytes)?;
        Ok(len_bytes)
    }

    fn copy_bytes(
        &self,
        source: &File,
        from: u64,
        len_bytes: u64,
        to: u64,
        how: WriteAs,
    ) -> Result<()> {
        let mut data = vec![0; len_bytes.min(COPIED_BYTES) as usize];
        let mut done_bytes = 0;
        while done_bytes < len_bytes {
            let wanted = (len_bytes - done_bytes).min(COPIED_BYTES) as usize;
            let len = source.read_at(&mut data[..wanted], from + done_bytes)?;
            if len == 0 {
                break;
            }
            self.write_as(&data[..len], to + done_bytes, how)?;
            done_bytes += len as u64;
        }
        Ok(())
    }
}

impl Share<'_> {
    /// Returns how many bytes are shared now; none if they must be equal and are not.
    fn run(self) -> Result<Option<u64>> {
        self.target.writer()?;
        self.source.writer()?;
        let (target, source) = (self.target.subvolume(), self.source.subvolume());
        if !target.filesystem().is_same(source.filesystem()) {
            return Err(Error::CrossFilesystem);
        }
        if self.if_equal() && self.len_bytes == 0 {
            let is_within = self.source_offset <= self.source.size_bytes();
            return if is_within { Ok(Some(0)) } else { Err(PASSES_END) };
        }
        check_alike(self.source.item().flags(), self.target.item().flags())?;
        if self.len_bytes == 0 && self.source_offset == self.source.size_bytes() {
            // Nothing to copy, whether the range is valid or not.
            return Ok(Some(0));
        }
        let len_bytes = self.checked_len()?;
        if self.why == Why::Change {
            drop_capability(self.target)?;
        }
        let mut done_bytes = 0;
        while done_bytes < len_bytes {
            let rest = Share {
                source_offset: self.source_offset + done_bytes,
                target_offset: self.target_offset + done_bytes,
                len_bytes: len_bytes - done_bytes,
                ..self
            };
            match rest.step()? {
                Some(step_bytes) => done_bytes += step_bytes.min(rest.len_bytes),
                None => return Ok(None),
            }
        }
        Ok(Some(len_bytes))
    }

    fn if_equal(&self) -> bool {
        self.why == Why::Equal
    }

    /// The length that can be shared, in bytes, by the kernel's rules.
    fn checked_len(&self) -> Result<u64> {
        let sectorsize = self.target.core().sectorsize();
        let (source_size, target_size) = (self.source.size_bytes(), self.target.size_bytes());
        let is_aligned = |offset: u64| offset.is_multiple_of(sectorsize);
        if !is_aligned(self.source_offset) || !is_aligned(self.target_offset) {
            return Err(Error::Invalid("a range that does not begin with a sector"));
        }
        let mut len_bytes = match self.len_bytes {
            0 => source_size.checked_sub(self.source_offset).ok_or(PASSES_END)?,
            len_bytes => len_bytes,
        };
        let end = |offset: u64, size_bytes| {
            offset.checked_add(len_bytes).filter(|end| *end <= size_bytes)
        };
        let source_end = end(self.source_offset, source_size).ok_or(PASSES_END)?;
        let target_end = end(self.target_offset, MOST_BYTES).ok_or(Error::FileTooLarge)?;
        if self.if_equal() && target_end > target_size {
            return Err(PASSES_END);
        }
        let ends_both = source_end == source_size
            && if self.if_equal() { target_end == target_size } else { target_end >= target_size };
        if !is_aligned(len_bytes) && !ends_both {
            if !self.if_equal() {
                return Err(Error::Invalid("a range that does not end with a sector"));
            }
            len_bytes -= len_bytes % sectorsize;
        }
        let covered_bytes = len_bytes.next_multiple_of(sectorsize);
        let distance_bytes = self.source_offset.abs_diff(self.target_offset);
        if self.source == self.target && distance_bytes < covered_bytes {
            return Err(Error::Invalid("a range that overlaps itself"));
        }
        Ok(len_bytes)
    }

    /// Shares a first part. Returns its length, in whole sectors; none if it must be equal and is
    /// not.
    fn step(&self) -> Result<Option<u64>> {
        let changeable = self.target.changeable()?;
        let Changeable { core, live: target, .. } = changeable;
        let source = self.source.live_inode()?;
        let sectorsize = core.sectorsize();
        let (most, need) = self.need()?;
        let reservation = reserve_within_quota(core, self.target.subvolume().id(), need)?;
        let change = FileChange::start_with(changeable, [source], reservation)?;
        self.check(source, target)?;
        for live in [source, target] {
            let mut file = change.lock(live);
            if !file.pages.is_clean() {
                write_back(&mut file)?;
            }
        }
        if self.if_equal() && !self.is_equal(source, target)? {
            return Ok(None);
        }
        let part = self.part(change.handle(), most)?;
        if self.if_equal() && part.inline.is_some() {
            // There is nothing to share.
            return Ok(Some(part.len_bytes));
        }
        let mut file = change.lock(target);
        file.absorb_reservation();
        self.target.grow_locked(&mut file, self.target_offset)?;
        if self.target_offset > 0 {
            self.target.load(&mut file, &[Need::IfInline])?;
        }
        let alone = file.exclude_readers();
        self.enter(&mut file, &part)?;
        drop(alone);
        if let Some((start, sector)) = &part.inline {
            file.pages.write(*start, sector, sectorsize);
        }
        let end = self.target_offset + part.len_bytes.min(self.len_bytes);
        file.size_bytes = file.size_bytes.max(end);
        let generation = change.handle().generation();
        match self.why {
            Why::Change => file.touch(generation, true),
            Why::New => file.item.transid = generation.into(),
            Why::Equal => {}
        }
        file.note_dirty();
        write_back(&mut file)?;
        drop(file);
        change.end()?;
        Ok(Some(part.len_bytes))
    }

    /// The most extents that one step shares, and the space that it takes: each extent is inserted
    /// and gets a reference, and at most as many others go.
    fn need(&self) -> Result<(usize, DataNeed)> {
        let sectorsize = self.target.core().sectorsize();
        let others = DataNeed::of_data(3 * sectorsize, 3);
        let wanted = self.len_bytes.div_ceil(sectorsize).min(SHARED_PER_STEP);
        let most = self.target.writer()?.sharings_at_once(others, wanted);
        Ok((most as usize, DataNeed { extents: 2 * most, references: 2 * most, ..others }))
    }

    /// Whether the files may share extents.
    fn check(&self, source: &LiveInode, target: &LiveInode) -> Result<()> {
        let sectorsize = self.target.core().sectorsize();
        let source = source.item();
        let file = target.read();
        check_alike(source.flags(), file.item.flags())?;
        let source_size = source.size.get();
        let is_end = source_size == self.source_offset + self.len_bytes
            && file.size_bytes <= self.target_offset + self.len_bytes;
        if !self.len_bytes.is_multiple_of(sectorsize) && !is_end {
            return Err(Error::Invalid("a range that does not end with a sector"));
        }
        if self.if_equal() {
            file.check_mutable()
        } else {
            file.check_may_write(self.target_offset)
        }
    }

    /// Whether both have the same bytes in the first part. Nothing of them is dirty.
    fn is_equal(&self, source: &LiveInode, target: &LiveInode) -> Result<bool> {
        let len = self.len_bytes.min(COMPARED_BYTES) as usize;
        let (mut its, mut ours) = (vec![0; len], vec![0; len]);
        let has_checksums = !source.item().flags().contains(InodeFlags::NODATASUM);
        self.source.read_tree(source, &mut its, self.source_offset, has_checksums)?;
        self.target.read_tree(target, &mut ours, self.target_offset, has_checksums)?;
        Ok(its == ours)
    }

    /// The first part to share: at most `most` extents, in place of at most as many.
    fn part(&self, handle: &Handle<'_>, most: usize) -> Result<Part> {
        let (theirs, ours) = (self.source.extents_in(handle)?, self.target.extents_in(handle)?);
        let most_bytes = if self.if_equal() { COMPARED_BYTES } else { u64::MAX };
        let wanted_bytes = self.len_bytes.min(most_bytes).next_multiple_of(theirs.sectorsize);
        let start = self.source_offset;
        let stretch = theirs.stretch(start, start + wanted_bytes, most)?;
        let to = self.target_offset;
        let until = to + (stretch.until - start);
        let end = start + (ours.stretch(to, until, most)?.until - to);
        let mut part = Part { len_bytes: end - start, extents: Vec::new(), inline: None };
        for (from, stored) in stretch.extents.into_iter().filter(|(from, _)| *from < end) {
            match stored {
                Stored::Inline { .. } => {
                    let mut sector = vec![0; theirs.sectorsize as usize];
                    self.source.read_stored_range(&mut sector, from, false)?;
                    part.inline = Some((to, sector));
                }
                Stored::Regular(_) if stored.is_hole() => {}
                Stored::Regular(mut item) => {
                    let cut_bytes = start.saturating_sub(from);
                    let (from, to_end) = (from + cut_bytes, from + item.extent.num_bytes.get());
                    item.extent.offset = (item.extent.offset.get() + cut_bytes).into();
                    item.extent.num_bytes = (to_end.min(end) - from).into();
                    part.extents.push((to + (from - start), item));
                }
            }
        }
        Ok(part)
    }

    /// Replaces the extents of the target with the part.
    fn enter(&self, target: &mut StillFile<'_, '_>, part: &Part) -> Result<()> {
        let extents = target.extents();
        let (start, end) = (self.target_offset, self.target_offset + part.len_bytes);
        let superblock = self.target.core().volume().superblock();
        let has_hole_items = !superblock.has_incompat(IncompatFlags::NO_HOLES);
        let shared = part.extents.iter().map(|(_, item)| item.extent.num_bytes.get());
        let shared_bytes: u64 = shared.sum();
        let dropped_bytes = target.apply(|_| {
            let dropped_bytes = extents.drop_range(start, end)?;
            for (at, item) in &part.extents {
                extents.insert_shared(*at, item)?;
            }
            if has_hole_items {
                extents.fill_holes(start, end)?;
            }
            Ok(dropped_bytes)
        })?;
        let kept_bytes = target.item.nbytes.get().saturating_sub(dropped_bytes);
        target.item.nbytes = (kept_bytes + shared_bytes).into();
        Ok(())
    }
}

/// Whether files with these flags may share.
fn check_alike(source: InodeFlags, target: InodeFlags) -> Result<()> {
    if (source ^ target).contains(InodeFlags::NODATASUM) {
        return Err(Error::Invalid("only one of the files has checksums"));
    }
    Ok(())
}

const PASSES_END: Error = Error::Invalid("a range that passes the end of the file");
