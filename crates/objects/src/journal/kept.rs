//! What a journal has when a process opens it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_device::{Access, Device, DeviceError, FileDevice};

use super::header::{BLOCK, Header, MAGIC, RECORDS};
use super::log::Log;
use super::record::{Kind, Record, UNIT};
use crate::codec::Malformed;
use crate::device::ObjectDevice;
use crate::error::ObjectsError;
use crate::manifest::{Manifest, Writer};
use crate::options::JournalOptions;
use crate::store::Store;

/// The least length of a journal, in bytes: more than a few commits.
const LEAST_BYTES: u64 = 16 << 20;

/// So much of a journal is read at once in search of records after a gap.
const STEP: u64 = 1 << 20;

/// A journal, and the records in it that the store may lack.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) log: Log,
    name: String,
    /// Up to the last flush.
    pub(super) records: Vec<Record>,
    /// Where the next record goes, and its chain.
    pub(super) end: u64,
    pub(super) chain: u64,
    /// How many flushes there are.
    pub(super) flushes: u64,
    /// More of them were durable.
    is_damaged: bool,
}

impl Kept {
    /// Opens the journal for the device `uuid` that `options` name, or begins it.
    pub(super) fn open(options: &JournalOptions, uuid: &[u8; 16]) -> Result<Self, ObjectsError> {
        let path = options.path_for(uuid);
        let len_bytes = RECORDS + Log::area_of(options.len_bytes);
        let name = path.display().to_string();
        prepare(&path).map_err(|error| ObjectsError::Journal {
            journal: name.clone(),
            why: error.to_string(),
        })?;
        let disk = FileDevice::open(&path, Access::ReadWrite);
        let disk = disk.map_err(|error| failed(&name, &error))?;
        let is_fresh = !disk.is_block_device() && disk.len_bytes() == 0;
        if is_fresh {
            disk.set_len(len_bytes).map_err(|error| failed(disk.name(), &error))?;
        }
        if disk.len_bytes() < LEAST_BYTES {
            let why = "it is too small for a journal, which takes 16 MiB at least";
            return Err(refused(disk.name(), Malformed(why)));
        }
        let disk = Arc::new(disk);
        let mut kept = Self::on(Arc::clone(&disk) as _, uuid)?;
        kept.log.expect_at(disk, path);
        Ok(kept)
    }

    /// Opens the journal at `path`, which is there, to look at it.
    pub(super) fn look(path: &Path) -> Result<Self, ObjectsError> {
        let disk = FileDevice::open(path, Access::ReadOnly);
        let disk = disk.map_err(|error| failed(&path.display().to_string(), &error))?;
        let name = disk.name().to_owned();
        match read_header(&disk)? {
            Some(header) => Self::scan(Log::new(Arc::new(disk), header), name),
            None => Err(refused(&name, Malformed("it is no journal of larder"))),
        }
    }

    /// Opens the journal for the device `uuid` on `disk`, or begins it there.
    pub(super) fn on(disk: Arc<dyn Device>, uuid: &[u8; 16]) -> Result<Self, ObjectsError> {
        let name = disk.name().to_owned();
        let area = Log::area_of(disk.len_bytes());
        if let Some(header) = read_header(&*disk)? {
            if header.uuid != *uuid {
                let why = "it is the journal of another file system; name another file";
                return Err(refused(&name, Malformed(why)));
            }
            return Self::scan(Log::new(disk, header), name)?.sound();
        }
        // What an earlier journal has left there does not continue this one.
        let random = uuid::Uuid::new_v4();
        let chain = u64::from_le_bytes(random.as_bytes()[8..].try_into().expect("8 bytes"));
        let header =
            Header { number: 0, uuid: *uuid, area, start: 0, chain, state: 0, claims: Vec::new() };
        let log = Log::new(disk, header);
        log.change(|_| ()).map_err(|error| failed(&name, &error))?;
        Ok(Self { log, name, records: Vec::new(), end: 0, chain, flushes: 0, is_damaged: false })
    }

    /// Reads the records. Those after the last flush have been promised to nobody.
    fn scan(log: Log, name: String) -> Result<Self, ObjectsError> {
        let header = log.header();
        let (mut position, mut chain) = (header.start, header.chain);
        let mut kept = Self {
            log,
            name,
            records: Vec::new(),
            end: position,
            chain,
            flushes: 0,
            is_damaged: false,
        };
        let limit = header.start + header.area;
        let mut records = Vec::new();
        while position < limit {
            let Some((record, next)) = kept.read(position, limit)? else { break };
            if record.chain != chain {
                break;
            }
            records.push(record);
            (position, chain) = (record.end(), next);
            if record.kind == Kind::Flush {
                kept.records.append(&mut records);
                (kept.end, kept.chain) = (position, chain);
                kept.flushes += 1;
            }
        }
        let more = kept.has_more(position, limit);
        kept.is_damaged = more.map_err(|error| failed(&kept.name, &error))?;
        Ok(kept)
    }

    /// Fails if a flush in it was durable that cannot be read.
    fn sound(self) -> Result<Self, ObjectsError> {
        let why = "what fsync made durable in it is damaged; 'larder objects clone --journal' copies \
                   what comes before that, and without it the last state of the store is mounted";
        if self.is_damaged { Err(refused(&self.name, Malformed(why))) } else { Ok(self) }
    }

    /// The record at `position`, if it is whole.
    fn read(&self, position: u64, limit: u64) -> Result<Option<(Record, u64)>, ObjectsError> {
        let read = || {
            let Some((record, next)) = self.log.record(position)? else { return Ok(None) };
            let is_whole = record.end() <= limit && self.log.content(&record)?.is_some();
            Ok(is_whole.then_some((record, next)))
        };
        read().map_err(|error| failed(&self.name, &error))
    }

    /// Whether a record after `position`, which cannot be read, says that a flush there was
    /// durable.
    fn has_more(&self, position: u64, limit: u64) -> Result<bool, DeviceError> {
        let mut at = position;
        let mut bytes = vec![0; STEP as usize];
        while at < limit {
            let here = STEP.min(self.log.left_at(at)).min(limit - at);
            let bytes = &mut bytes[..here as usize];
            self.log.read(bytes, at)?;
            for (unit, found) in bytes.chunks(UNIT as usize).zip((at..).step_by(UNIT as usize)) {
                let record = Record::decode(unit, found);
                if record.is_some_and(|(record, _)| record.durable > position) {
                    return Ok(true);
                }
            }
            at += here;
        }
        Ok(false)
    }

    /// Fails if it is not the journal of the device `uuid`.
    pub(super) fn check_origin(&self, uuid: &[u8; 16]) -> Result<(), ObjectsError> {
        if self.log.header().uuid == *uuid {
            return Ok(());
        }
        Err(refused(&self.name, Malformed("it is the journal of another file system")))
    }

    /// Makes the changes of its records to `device`, and flushes it.
    pub(super) fn add_to(&self, device: &ObjectDevice) -> Result<(), ObjectsError> {
        for record in &self.records {
            let content = self.log.content(record).map_err(|error| failed(&self.name, &error))?;
            let wrong = || refused(&self.name, Malformed("the checksum of a record is wrong"));
            let added = match record.kind {
                Kind::Write => device.write_at(&content.ok_or_else(wrong)?, record.start),
                Kind::Discard => device.discard(record.start, record.len),
                Kind::Flush | Kind::Rest => Ok(()),
            };
            added.map_err(|error| failed(&self.name, &error))?;
        }
        device.flush().map_err(|error| failed(&self.name, &error))
    }

    /// Where it is.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the store may lack something that it has.
    pub(crate) fn is_dirty(&self) -> bool {
        self.flushes > 0
    }

    /// How much it has that the store may lack, in bytes.
    fn bytes(&self) -> u64 {
        self.records.iter().map(Record::size).sum()
    }

    /// The state that its records change.
    pub(super) fn state(&self) -> u64 {
        self.log.header().state
    }

    /// Fails if what the journal has cannot follow what `manifest` leads to.
    pub(crate) fn check(&self, store: &dyn Store, manifest: &Manifest) -> Result<(), ObjectsError> {
        if !self.is_dirty() || self.is_of(&manifest.writer) {
            return Ok(());
        }
        Err(ObjectsError::Superseded {
            store: store.name().to_owned(),
            journal: self.name.clone(),
            flushes: self.flushes,
            bytes: self.bytes(),
            by: manifest.writer.to_string(),
            state: self.state(),
        })
    }

    /// How much of it `manifest` has, which says what all flushes say. Fails if what the journal
    /// has does not lead on from there: the store or the journal is an older copy.
    pub(crate) fn stored_of(
        &self,
        store: &dyn Store,
        manifest: &Manifest,
    ) -> Result<Option<u64>, ObjectsError> {
        if !self.is_dirty() {
            return Ok(Some(self.chain));
        }
        let leads_on =
            |stored| stored == self.chain || self.records.iter().any(|it| it.chain == stored);
        let stored = manifest.writer.journaled;
        if stored.is_none_or(leads_on) {
            return Ok(stored);
        }
        Err(ObjectsError::OlderCopy {
            store: store.name().to_owned(),
            journal: self.name.clone(),
            flushes: self.flushes,
            bytes: self.bytes(),
            state: self.state(),
        })
    }

    /// Forgets what it has if `writer` has given it up: the store has that.
    pub(super) fn forget_if_given_up(&mut self, writer: &Writer) -> Result<(), ObjectsError> {
        if !writer.journal.is_empty() || !self.log.header().claims.contains(&writer.nonce) {
            return Ok(());
        }
        let (end, chain) = (self.end, self.chain);
        let change = |header: &mut Header| (header.start, header.chain) = (end, chain);
        self.log.change(change).map_err(|error| failed(&self.name, &error))?;
        self.records.clear();
        self.flushes = 0;
        Ok(())
    }

    /// Whether `writer` has flushed nothing that this journal lacked.
    fn is_of(&self, writer: &Writer) -> bool {
        !writer.journal.is_empty() && self.log.header().claims.contains(&writer.nonce)
    }

    /// Notes that the writer with this nonce will use it, which follows `before`.
    pub(crate) fn claim(&self, nonce: &[u8; 16], before: &Writer) -> Result<(), ObjectsError> {
        let change = |header: &mut Header| header.claim(*nonce, &before.nonce);
        self.log.change(change).map_err(|error| failed(&self.name, &error))
    }
}

/// Fails if the writer that `manifest` names has left a journal on this machine, and nobody has
/// written since.
pub(crate) fn check_none_is_left(
    store: &dyn Store,
    manifest: &Manifest,
    host: &str,
) -> Result<(), ObjectsError> {
    let Writer { journal, host: before, .. } = &manifest.writer;
    let path = PathBuf::from(journal);
    if journal.is_empty() || before != host || !path.exists() {
        return Ok(());
    }
    let kept = Kept::look(&path)?;
    let is_of_it = kept.log.header().uuid == manifest.uuid;
    if kept.is_dirty() && is_of_it && kept.is_of(&manifest.writer) {
        let (store, journal) = (store.name().to_owned(), journal.clone());
        return Err(ObjectsError::JournalLeft { store, journal });
    }
    Ok(())
}

/// Warns a reader of a journal on this machine that has what the writer of `manifest` has written
/// last.
pub(crate) fn warn_of_what_is_left(store: &dyn Store, manifest: &Manifest, host: &str) {
    let Writer { journal, host: before, is_done, .. } = &manifest.writer;
    if *is_done || journal.is_empty() || before != host {
        return;
    }
    let Ok(disk) = FileDevice::open(journal, Access::ReadOnly) else { return };
    let Ok(Some(header)) = read_header(&disk) else { return };
    let (start, chain) = (header.start, header.chain);
    let is_of_it = header.uuid == manifest.uuid;
    let first = Log::new(Arc::new(disk), header).record(start);
    let has_more = first.is_ok_and(|it| it.is_some_and(|(record, _)| record.chain == chain));
    if is_of_it && has_more {
        tracing::warn!(
            "{}: what was written last may be in the journal {journal} alone, and is not shown; a \
             mount for writing with -o journal={journal} has it",
            store.name()
        );
    }
}

/// Makes a file for the user alone where nothing is. Its name is durable then.
fn prepare(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    if !path.try_exists()? {
        let made = tempfile::NamedTempFile::new_in(folder)?.persist_noclobber(path);
        made.map_err(|error| error.error)?;
    }
    if path.is_file() { larder_platform::sync_directory(folder) } else { Ok(()) }
}

/// The last header on `disk`; `None` if there is nothing at all.
fn read_header(disk: &dyn Device) -> Result<Option<Header>, ObjectsError> {
    let mut blocks = vec![0; RECORDS as usize];
    if disk.len_bytes() < RECORDS {
        return Err(refused(disk.name(), Malformed("it is no journal of larder")));
    }
    disk.read_at(&mut blocks, 0).map_err(|error| failed(disk.name(), &error))?;
    let (first, second) = blocks.split_at(BLOCK as usize);
    let (one, other) = (Header::decode(first), Header::decode(second));
    let found = match (one, other) {
        (Ok(one), Ok(other)) => Ok(if one.number > other.number { one } else { other }),
        (Ok(header), _) | (_, Ok(header)) => Ok(header),
        (Err(error), Err(_)) => Err(error),
    };
    // The very first header is the second block's, and a claim follows before any record: that one
    // may be torn.
    let is_new = first.iter().all(|byte| *byte == 0)
        && (second.starts_with(MAGIC) || second.iter().all(|byte| *byte == 0));
    match found {
        Ok(header) if header.area == Log::area_of(disk.len_bytes()) => Ok(Some(header)),
        Ok(_) => Err(refused(disk.name(), Malformed("its length is another than it was"))),
        Err(_) if is_new => Ok(None),
        Err(error) => Err(refused(disk.name(), error)),
    }
}

pub(super) fn failed(journal: &str, error: &DeviceError) -> ObjectsError {
    let text = error.to_string();
    let why = text.strip_prefix(journal).and_then(|text| text.strip_prefix(": "));
    ObjectsError::Journal { journal: journal.to_owned(), why: why.unwrap_or(&text).to_owned() }
}

fn refused(journal: &str, why: Malformed) -> ObjectsError {
    ObjectsError::Journal { journal: journal.to_owned(), why: format!("the journal: {why}") }
}
