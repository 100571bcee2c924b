//! The walk of a send, inode by inode.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use larder_btree::{Readahead, Tree};
use larder_filesystem::{FileType, Subvolume};
use larder_format::item::InodeItem;
use larder_format::{ItemType, Key, objectid};
use larder_platform::OsStrExt;

use super::ahead::{Ahead, fetching_ahead};
use super::changes::{Change, Changes, Kind};
use super::clone::CloneSources;
use super::names::{Id, Names};
use super::pipeline::Output;
use super::progress::Counted;
use super::record::{Record, Records};
use super::{Reading, SendError, SendOptions, origin_of};
use crate::receive::Origin;
use crate::wire::{Command, Version};

/// The number of changes whose leaves are fetched at a time.
const CHANGES_AHEAD: usize = 32;
/// The attribute that writing to a file or changing its owner removes.
const CAPABILITY: &[u8] = b"security.capability";
/// The access control list that new entries of a directory inherit.
pub(super) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// An inode in the parent.
pub(super) struct Was<'a> {
    pub(super) item: &'a InodeItem,
    /// Its items, unless names and extended attributes are the same.
    pub(super) record: Option<&'a Record>,
    /// The offsets of the first and last extent that differ.
    pub(super) extents: Option<RangeInclusive<u64>>,
}

pub(super) struct Sender<'a> {
    pub(super) options: &'a SendOptions,
    reading: Reading,
    pub(super) output: &'a mut Output,
    pub(super) new: Subvolume,
    pub(super) old: Option<Subvolume>,
    pub(super) changes: Arc<Changes>,
    pub(super) names: Names,
    pub(super) clone_sources: CloneSources,
    /// All inodes below this number were sent.
    pub(super) position: u64,
    counted: Counted,
    /// Directories after the position that were made ahead of their contents.
    pub(super) made_ahead: HashSet<u64>,
    /// Directories to finish.
    pub(super) directories: Vec<u64>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(
        snapshot: &Subvolume,
        options: &'a SendOptions,
        reading: Reading,
        changes: Arc<Changes>,
        output: &'a mut Output,
    ) -> Self {
        let (new, old) = (snapshot.clone(), options.parent.clone());
        let names = Names::new(new.clone(), old.clone(), changes.clone());
        let others = options.parent.iter().chain(&options.clone_sources).cloned();
        let clone_sources = CloneSources::new(snapshot, others);
        Self {
            options,
            reading,
            output,
            new,
            old,
            changes,
            names,
            clone_sources,
            position: objectid::FIRST_FREE,
            counted: Counted::default(),
            made_ahead: HashSet::new(),
            directories: Vec::new(),
        }
    }

    /// Sends everything, and returns the number of inodes. The stream ends only if `check` finds that
    /// all was read as it is.
    pub(super) fn send(
        mut self,
        check: &dyn Fn() -> Result<(), SendError>,
    ) -> Result<u64, SendError> {
        self.begin()?;
        let inodes = match self.changes.clone().as_ref() {
            Changes::Everything => self.send_all()?,
            Changes::Some(changes) => self.send_changes(changes)?,
        };
        self.finish_directories()?;
        check()?;
        if self.options.ends_stream {
            self.output.put(&Command::End)?;
        }
        Ok(inodes)
    }

    fn begin(&mut self) -> Result<(), SendError> {
        let name = self.new.info()?.name.ok_or(SendError::NotNamed(self.new.id()))?.name;
        let Origin { uuid, ctransid } = origin_of(&self.new);
        match &self.old {
            None => self.output.put(&Command::Subvol { path: &name, uuid, ctransid }),
            Some(parent) => {
                let Origin { uuid: clone_uuid, ctransid: clone_ctransid } = origin_of(parent);
                let path = &name;
                self.output.put(&Command::Snapshot {
                    path,
                    uuid,
                    ctransid,
                    clone_uuid,
                    clone_ctransid,
                })
            }
        }
    }

    fn send_all(&mut self) -> Result<u64, SendError> {
        let mut records = Records::new(&self.new, self.reading.readahead);
        let mut inodes = 0;
        self.counted.total = records.last()?.saturating_sub(objectid::FIRST_FREE) + 1;
        while let Some(record) = records.from(self.position)? {
            self.position = record.ino;
            self.counted.done = record.ino - objectid::FIRST_FREE;
            self.show_progress(0, 0);
            self.send_inode(&record, None)?;
            self.position = record.ino + 1;
            inodes += 1;
        }
        Ok(inodes)
    }

    fn send_changes(&mut self, changes: &[Change]) -> Result<u64, SendError> {
        self.clear(changes)?;
        let old = self.old.clone().ok_or(SendError::Stopped)?;
        let tree = self.new.tree().clone();
        fetching_ahead(self.reading.readers, |ahead| self.make_changes(changes, &old, &tree, ahead))
    }

    fn make_changes(
        &mut self,
        changes: &[Change],
        old: &Subvolume,
        tree: &Tree,
        ahead: &Ahead,
    ) -> Result<u64, SendError> {
        let mut before = Records::new(old, Readahead::None);
        let mut now = Records::new(&self.new, Readahead::None);
        self.counted.total = changes.len() as u64;
        for (number, change) in changes.iter().enumerate() {
            if number.is_multiple_of(CHANGES_AHEAD) {
                let next = changes.iter().skip(number + CHANGES_AHEAD).take(CHANGES_AHEAD);
                let key = |next: &Change| Key::new(next.ino, ItemType::INODE_ITEM, 0);
                ahead.leaves(tree, next.map(key).collect());
            }
            if change.kind == Kind::Removed {
                continue;
            }
            self.counted.done = number as u64;
            self.show_progress(0, 0);
            let record = now.get(change.ino)?;
            self.position = change.ino;
            if change.kind != Kind::Changed {
                self.send_inode(&record, None)?;
                continue;
            }
            let needs_old = change.names || change.xattrs;
            let record_before = needs_old.then(|| before.get(change.ino)).transpose()?;
            let item = change.was.as_ref().unwrap_or(&record.item);
            let was = Was { item, record: record_before.as_ref(), extents: change.extents.clone() };
            self.send_inode(&record, Some(&was))?;
        }
        Ok(changes.len() as u64)
    }

    /// Reports the progress, with `part` of `whole` bytes of this inode sent.
    pub(super) fn show_progress(&self, part: u64, whole: u64) {
        self.options.progress.set_millionths(self.counted.millionths(part, whole));
    }

    /// Sends an inode: all of it, or its differences from `was`.
    fn send_inode(&mut self, record: &Record, was: Option<&Was<'_>>) -> Result<(), SendError> {
        let record_before = was.and_then(|was| was.record);
        let path = match was {
            _ if record.is_root() => Vec::new(),
            Some(_) => self.give_names(record, record_before)?,
            None => self.make(record)?,
        };
        let mut sets_acl = false;
        if was.is_none() || record_before.is_some() {
            sets_acl = self.send_xattrs(&path, record, record_before, |name| {
                !(record.is_directory() && is_passed_on(name))
            })?;
        }
        if record.file_type == FileType::Regular {
            self.send_content(&path, record, was)?;
        }
        self.send_owner(&path, record, was.map(|was| was.item), sets_acl)?;
        if let Some(data) = record.xattr(CAPABILITY) {
            self.output.put(&Command::SetXattr { path: &path, name: CAPABILITY, data })?;
        }
        if record.is_directory() {
            self.directories.push(record.ino);
            return Ok(());
        }
        self.send_times(&path, record)
    }

    /// Sends the `wanted` extended attributes that differ, except capabilities, which are only
    /// removed here. Returns whether it set an access control list.
    fn send_xattrs(
        &mut self,
        path: &[u8],
        record: &Record,
        was: Option<&Record>,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, SendError> {
        let mut sets_acl = false;
        let gone = was.iter().flat_map(|was| &was.xattrs);
        for name in gone.map(|xattr| xattr.name.as_bytes()) {
            if record.xattr(name).is_none() && wanted(name) {
                self.output.put(&Command::RemoveXattr { path, name })?;
            }
        }
        for xattr in &record.xattrs {
            let (name, data) = (xattr.name.as_bytes(), &*xattr.value);
            let before = was.and_then(|was| was.xattr(name));
            let is_wanted = name != CAPABILITY && wanted(name);
            if is_wanted && before != Some(data) {
                self.output.put(&Command::SetXattr { path, name, data })?;
                sets_acl |= name.starts_with(b"system.posix_acl");
            }
        }
        Ok(sets_acl)
    }

    /// Sends owner and permissions: a new owner or access control list changes permissions as well.
    fn send_owner(
        &mut self,
        path: &[u8],
        record: &Record,
        was: Option<&InodeItem>,
        sets_acl: bool,
    ) -> Result<(), SendError> {
        let owner = |item: &InodeItem| (item.uid.get(), item.gid.get());
        let (uid, gid) = owner(&record.item);
        let is_other_owner = was.is_none_or(|was| owner(was) != (uid, gid));
        if is_other_owner {
            let (uid, gid) = (uid.into(), gid.into());
            self.output.put(&Command::Chown { path, uid, gid })?;
        }
        let mode = permissions(&record.item);
        let is_other_mode = was.is_none_or(|was| permissions(was) != mode);
        if record.file_type != FileType::Symlink && (is_other_mode || is_other_owner || sets_acl) {
            self.output.put(&Command::Chmod { path, mode })?;
        }
        Ok(())
    }

    fn send_times(&mut self, path: &[u8], record: &Record) -> Result<(), SendError> {
        let [atime, mtime, ctime, otime] = record.times();
        let otime = (self.output.version() >= Version::V2).then_some(otime);
        self.output.put(&Command::Utimes { path, atime, mtime, ctime, otime })
    }

    /// Notes that entries of a directory change: its times must be set again.
    pub(super) fn touch(&mut self, directory: Id) {
        // A directory that this stream makes is finished anyway, and so is the root if there is no
        // parent.
        let Id::Old(ino) = directory else { return };
        let is_noted = self.directories.last() == Some(&ino);
        if self.old.is_some() && self.changes.is_kept(ino) && !is_noted {
            self.directories.push(ino);
        }
    }

    /// Sends the attributes and times of directories, after the last change in them.
    fn finish_directories(&mut self) -> Result<(), SendError> {
        let mut directories = std::mem::take(&mut self.directories);
        directories.sort_unstable();
        directories.dedup();
        let mut now = Records::new(&self.new, Readahead::None);
        let mut before = self.old.as_ref().map(|old| Records::new(old, Readahead::None));
        for ino in directories {
            let record = now.get(ino)?;
            let id = self.names.id(ino);
            let path = self.names.directory(id)?.to_vec();
            let was = match (&mut before, id) {
                (Some(before), Id::Old(ino)) => Some(before.get(ino)?),
                _ => None,
            };
            self.send_xattrs(&path, &record, was.as_ref(), is_passed_on)?;
            self.send_times(&path, &record)?;
        }
        Ok(())
    }
}

/// Permissions with setuid, setgid and sticky.
fn permissions(item: &InodeItem) -> u64 {
    u64::from(item.mode.get() & 0o7777)
}

/// Whether new entries of a directory inherit the extended attribute. Directories get such
/// attributes after the last entry.
pub(super) fn is_passed_on(name: &[u8]) -> bool {
    name == DEFAULT_ACL || name.starts_with(b"btrfs.")
}
