//! The disk of a journal: two headers, and records in a ring.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;

use larder_device::{Device, DeviceError, FileDevice, Operation};
use parking_lot::Mutex;

use super::header::{BLOCK, Header, RECORDS};
use super::record::{Kind, Record, UNIT};

/// A journal on its disk.
#[derive(Debug)]
pub(super) struct Log {
    disk: Arc<dyn Device>,
    area: u64,
    header: Mutex<Header>,
    /// The disk's file, and where the next process looks for it.
    file: Option<(Arc<FileDevice>, PathBuf)>,
}

impl Log {
    /// The journal with the header `header`, which `disk` has or will have.
    pub(super) fn new(disk: Arc<dyn Device>, header: Header) -> Self {
        Self { disk, area: header.area, header: Mutex::new(header), file: None }
    }

    /// From now on records are durable only as long as `file`, which is the disk, lies at `path`.
    pub(super) fn expect_at(&mut self, file: Arc<FileDevice>, path: PathBuf) {
        self.file = Some((file, path));
    }

    /// How much room records have on a disk of `len_bytes`.
    pub(super) fn area_of(len_bytes: u64) -> u64 {
        len_bytes.saturating_sub(RECORDS) / UNIT * UNIT
    }

    pub(super) fn area(&self) -> u64 {
        self.area
    }

    pub(super) fn header(&self) -> Header {
        self.header.lock().clone()
    }

    /// Where a position lies on the disk.
    fn offset(&self, position: u64) -> u64 {
        RECORDS + position % self.area
    }

    /// How much of the ring follows `position` before its end.
    pub(super) fn left_at(&self, position: u64) -> u64 {
        self.area - position % self.area
    }

    pub(super) fn read(&self, into: &mut [u8], position: u64) -> Result<(), DeviceError> {
        self.disk.read_at(into, self.offset(position))
    }

    /// Writes a record with its content. It ends before the ring does.
    pub(super) fn write(
        &self,
        record: &Record,
        content: &[IoSlice<'_>],
    ) -> Result<u64, DeviceError> {
        let (unit, chain) = record.encode();
        let mut parts = Vec::with_capacity(content.len() + 1);
        parts.push(IoSlice::new(&unit));
        parts.extend_from_slice(content);
        self.disk.write_vectored_at(&parts, self.offset(record.position))?;
        Ok(chain)
    }

    /// The record at `position`, if one is there.
    pub(super) fn record(&self, position: u64) -> Result<Option<(Record, u64)>, DeviceError> {
        let mut unit = [0; UNIT as usize];
        self.read(&mut unit, position)?;
        let found = Record::decode(&unit, position);
        Ok(found.filter(|(record, _)| record.size() <= self.left_at(position)))
    }

    /// The content of a record; `None` if it is not what was written.
    pub(super) fn content(&self, record: &Record) -> Result<Option<Vec<u8>>, DeviceError> {
        let mut content = Vec::new();
        if record.kind == Kind::Write {
            content.resize(record.len as usize, 0);
            self.read(&mut content, record.content_at())?;
            if super::record::checksum(&[IoSlice::new(&content)]) != record.content {
                return Ok(None);
            }
        }
        Ok(Some(content))
    }

    /// Makes all records that were written durable.
    pub(super) fn sync(&self) -> Result<(), DeviceError> {
        self.disk.flush()?;
        match &self.file {
            Some((file, path)) if !file.is_at(path) => {
                let gone = "somebody has removed, replaced or cut its file";
                let gone = io::Error::new(io::ErrorKind::NotFound, gone);
                Err(DeviceError::io(&*self.disk, Operation::Flush, 0, 0, gone))
            }
            _ => Ok(()),
        }
    }

    /// Changes the header, durably.
    pub(super) fn change(&self, change: impl FnOnce(&mut Header)) -> Result<(), DeviceError> {
        let mut header = self.header.lock();
        let mut next = header.clone();
        change(&mut next);
        next.number += 1;
        self.disk.write_at(&next.encode(), next.number % 2 * BLOCK)?;
        self.disk.flush()?;
        *header = next;
        Ok(())
    }

    /// Gives the space of all records back.
    pub(super) fn give_back(&self) -> Result<(), DeviceError> {
        self.disk.discard(RECORDS, self.area)
    }
}
