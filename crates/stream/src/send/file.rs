//! The content of regular files.

use std::ops::RangeInclusive;
use std::sync::Arc;

use larder_filesystem::{Error, ExtentContent, Inode, MappedRange};

use super::SendError;
use super::clone::{CloneSource, RangeToSend};
use super::content::{Part, compare};
use super::data::{Form, ReadJob, WORK_BYTES, compression_number, write_bytes};
use super::record::{Content, Record};
use super::sender::{Sender, Was};
use crate::wire::{Command, Version};

/// `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`.
const PUNCH_HOLE: u32 = 3;

impl Sender<'_> {
    /// Sends the differences of a regular file's content from `was`, and its length.
    pub(super) fn send_content(
        &mut self,
        path: &[u8],
        record: &Record,
        was: Option<&Was<'_>>,
    ) -> Result<(), SendError> {
        let size_bytes = record.item.size.get();
        let old_bytes = was.map_or(0, |was| was.item.size.get());
        let changed = match was {
            Some(was) => was.extents.clone(),
            None => (record.content != Content::Empty).then_some(0..=u64::MAX),
        };
        if old_bytes > size_bytes {
            self.output.put(&Command::Truncate { path, size: size_bytes })?;
        }
        let mut end = old_bytes.min(size_bytes);
        // The content after the old end must be compared though its extents are the same.
        let resized = was.is_some() && size_bytes != old_bytes;
        if let (Content::Inline(data), Some(_), false) =
            (&record.content, &changed, self.options.no_data)
        {
            self.write_inline(path, data)?;
            end = size_bytes;
        } else if changed.is_some() || resized {
            let first = changed.as_ref().map_or(u64::MAX, |range| *range.start());
            let (first, last) = if resized {
                (first.min(end), u64::MAX)
            } else {
                (first, changed.map_or(0, |range| *range.end()))
            };
            end = self.send_ranges(path, record, was.is_some(), first..=last, end)?;
        }
        if end != size_bytes {
            self.output.put(&Command::Truncate { path, size: size_bytes })?;
        }
        Ok(())
    }

    /// The clone source for the start of a range.
    fn find_clone(&mut self, wanted: &RangeToSend<'_>) -> Option<CloneSource> {
        let (position, changes) = (self.position, &self.changes);
        let is_complete = |ino| ino < position || !changes.is_changed(ino);
        self.clone_sources.find(wanted, &mut self.names, is_complete)
    }

    fn write_inline(&mut self, path: &[u8], data: &[u8]) -> Result<(), SendError> {
        let pieces = data.chunks(write_bytes(self.output.version()));
        let mut offset = 0;
        for data in pieces {
            self.output.put(&Command::Write { path, offset, data })?;
            offset += data.len() as u64;
        }
        Ok(())
    }

    /// Sends the ranges that differ, comparing the extents that begin in `extents`. Returns the new
    /// end of the receiver's file, given its old `end`.
    fn send_ranges(
        &mut self,
        path: &[u8],
        record: &Record,
        is_old: bool,
        extents: RangeInclusive<u64>,
        end: u64,
    ) -> Result<u64, SendError> {
        let inode = self.new.inode(record.ino)?;
        let old = self.old.as_ref().filter(|_| is_old);
        let old = old.map(|old| old.inode(record.ino)).transpose()?;
        let mut ranges =
            Ranges { sender: self, inode: &inode, path: Arc::from(path), pending: None, end };
        compare(&inode, old.as_ref(), extents, |start, end, part| match part {
            Part::Data(extent) => ranges.add_data(start, end, extent),
            Part::Zeros => ranges.add_zeros(start, end),
        })?;
        ranges.flush()?;
        Ok(ranges.end)
    }
}

/// Turns the ranges of a file that differ, in order, into commands.
struct Ranges<'a, 's> {
    sender: &'a mut Sender<'s>,
    inode: &'a Inode,
    path: Arc<[u8]>,
    /// A range of data that may get longer.
    pending: Option<(u64, u64)>,
    /// The end of the receiver's file.
    end: u64,
}

impl Ranges<'_, '_> {
    fn add_data(&mut self, start: u64, end: u64, extent: &MappedRange) -> Result<(), SendError> {
        let start = self.clone_range(start, end, extent)?;
        if start == end {
            return Ok(());
        }
        if self.sender.options.compressed_data
            && self.sender.output.version() >= Version::V2
            && !self.sender.options.no_data
            && let Some(form) = self.stored_form(start, end, extent)
        {
            self.flush()?;
            return self.put(start, end, form);
        }
        match &mut self.pending {
            Some((_, pending_end)) if *pending_end == start => *pending_end = end,
            _ => {
                self.flush()?;
                self.pending = Some((start, end));
            }
        }
        self.flush_whole()
    }

    /// Makes the receiver clone the start of the range. Returns the start of the rest.
    fn clone_range(
        &mut self,
        start: u64,
        end: u64,
        extent: &MappedRange,
    ) -> Result<u64, SendError> {
        let mut start = start;
        while start < end && !self.sender.options.no_data {
            let wanted = RangeToSend { inode: self.inode, start, end, extent };
            let Some(found) = self.sender.find_clone(&wanted) else { break };
            self.flush()?;
            self.sender.output.put(&Command::Clone {
                offset: start,
                len: found.len_bytes,
                path: &self.path,
                clone_uuid: found.uuid,
                clone_ctransid: found.ctransid,
                clone_path: &found.path,
                clone_offset: found.offset,
            })?;
            start += found.len_bytes;
            self.end = self.end.max(start);
        }
        Ok(start)
    }

    /// The range as part of a compressed extent, if sending the stored extent is shorter.
    fn stored_form(&self, start: u64, end: u64, extent: &MappedRange) -> Option<Form> {
        let ExtentContent::Data(disk) = &extent.content else { return None };
        let algorithm = disk.compression.filter(|_| disk.disk_bytes <= end - start)?;
        let sectorsize = self.sender.new.filesystem().volume().sectorsize();
        Some(Form::Stored {
            extent: *disk,
            compression: compression_number(algorithm, sectorsize),
            offset_bytes: disk.offset_bytes + (start - extent.start.0),
        })
    }

    fn add_zeros(&mut self, start: u64, end: u64) -> Result<(), SendError> {
        self.flush()?;
        let path = &*self.path;
        if self.sender.options.no_data {
            return self.sender.output.put(&Command::UpdateExtent {
                path,
                offset: start,
                len: end - start,
            });
        }
        if self.sender.output.version() >= Version::V2 {
            let len = end - start;
            let command = Command::Fallocate { path, mode: PUNCH_HOLE, offset: start, len };
            return self.sender.output.put(&command);
        }
        match self.inode.clone().into_file().and_then(|file| file.seek_data(start)) {
            Err(Error::NoSuchPosition) => {
                // Only zeros follow: cut them off, and let the file grow again.
                if self.end > start {
                    self.sender.output.put(&Command::Truncate { path, size: start })?;
                    self.end = start;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(_) => self.write_zeros(start, end),
        }
    }

    fn write_zeros(&mut self, start: u64, end: u64) -> Result<(), SendError> {
        let path = &*self.path;
        let zeros = vec![0; write_bytes(self.sender.output.version())];
        let mut offset = start;
        while offset < end {
            let data = &zeros[..zeros.len().min((end - offset) as usize)];
            self.sender.output.put(&Command::Write { path, offset, data })?;
            offset += data.len() as u64;
        }
        self.end = self.end.max(end);
        Ok(())
    }

    /// Puts pieces of the pending range that are large enough for a worker.
    fn flush_whole(&mut self) -> Result<(), SendError> {
        while let Some((start, end)) = self.pending
            && end - start >= WORK_BYTES as u64
        {
            let middle = start + WORK_BYTES as u64;
            self.put(start, middle, Form::Plain)?;
            self.pending = (middle < end).then_some((middle, end));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SendError> {
        match self.pending.take() {
            Some((start, end)) => self.put(start, end, Form::Plain),
            None => Ok(()),
        }
    }

    fn put(&mut self, start: u64, end: u64, form: Form) -> Result<(), SendError> {
        self.end = self.end.max(end);
        let (offset, len_bytes) = (start, end - start);
        if self.sender.options.no_data {
            let path = &*self.path;
            let command = Command::UpdateExtent { path, offset, len: len_bytes };
            return self.sender.output.put(&command);
        }
        self.sender.show_progress(start, self.inode.size_bytes());
        let (inode, path) = (self.inode.clone(), self.path.clone());
        self.sender.output.put_data(ReadJob { inode, path, offset, len_bytes, form })
    }
}
