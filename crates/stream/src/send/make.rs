//! Making inodes, and adding names to existing ones.

use larder_filesystem::{FileType, Link};
use larder_format::objectid;
use larder_platform::{OsStrExt, OsStringExt};

use super::SendError;
use super::names::{CurrentName, Id, directory_link};
use super::record::{Content, Record};
use super::sender::{DEFAULT_ACL, Sender, is_passed_on};
use crate::wire::Command;

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

impl Sender<'_> {
    /// Makes an inode under its first name and adds the others. Returns its path.
    pub(super) fn make(&mut self, record: &Record) -> Result<Vec<u8>, SendError> {
        let Some((first, others)) = record.links.split_first() else {
            return Err(SendError::NoNames(record.ino));
        };
        let path = self.path_of(first)?;
        if !self.made_ahead.remove(&record.ino) {
            self.make_at(&path, record)?;
            self.shed_inherited(first, &path, record.file_type)?;
        }
        for link in others {
            let name = self.path_of(link)?;
            self.output.put(&Command::Link { path: &name, existing: &path })?;
        }
        Ok(path)
    }

    fn make_at(&mut self, path: &[u8], record: &Record) -> Result<(), SendError> {
        let (ino, mode) = (record.ino, u64::from(record.item.mode.get()));
        let rdev = device_number(record.item.rdev.get());
        let (some_rdev, some_mode) = (Some(rdev), Some(mode));
        self.output.put(&match record.file_type {
            FileType::Regular => Command::Mkfile { path, ino },
            FileType::Directory => Command::Mkdir { path, ino },
            FileType::BlockDevice | FileType::CharDevice => {
                Command::Mknod { path, ino, rdev, mode }
            }
            FileType::Fifo => Command::Mkfifo { path, ino, rdev: some_rdev, mode: some_mode },
            FileType::Socket => Command::Mksock { path, ino, rdev: some_rdev, mode: some_mode },
            FileType::Symlink => {
                let read;
                let target = if let Content::Inline(target) = &record.content {
                    target
                } else {
                    read = self.new.inode(ino)?.link_target()?.into_os_string().into_vec();
                    &read
                };
                return self.output.put(&Command::Symlink { path, ino, target });
            }
        })
    }

    /// Removes attributes that a new inode may inherit from its directory: an existing one on the
    /// receiver may pass on attributes that this entry lacks. Missing access control lists can be
    /// removed, but other attributes only be set to nothing.
    fn shed_inherited(
        &mut self,
        link: &Link,
        path: &[u8],
        file_type: FileType,
    ) -> Result<(), SendError> {
        let (Id::Old(directory), Some(old)) = (self.names.id(link.parent), &self.old) else {
            return Ok(());
        };
        if file_type == FileType::Symlink {
            return Ok(());
        }
        for xattr in old.inode(directory)?.xattrs() {
            let name = xattr?.name.into_vec();
            if name == DEFAULT_ACL {
                self.output.put(&Command::RemoveXattr { path, name: ACCESS_ACL })?;
                if file_type == FileType::Directory {
                    self.output.put(&Command::RemoveXattr { path, name: DEFAULT_ACL })?;
                }
            } else if is_passed_on(&name) {
                self.output.put(&Command::SetXattr { path, name: &name, data: b"" })?;
            }
        }
        Ok(())
    }

    /// Adds the missing names of an inode that the receiver has, if any may be missing. Returns one
    /// of its paths.
    pub(super) fn give_names(
        &mut self,
        record: &Record,
        was: Option<&Record>,
    ) -> Result<Vec<u8>, SendError> {
        let mut missing = was.map_or_else(Vec::new, |was| self.added_links(record, was));
        let place = self.names.place(record.ino).cloned();
        let path = match place {
            Some(CurrentName::Staged(staged)) => {
                let Some(first) = (!missing.is_empty()).then(|| missing.remove(0)) else {
                    return Err(SendError::NoNames(record.ino));
                };
                let path = self.path_of(first)?;
                self.output.put(&Command::Rename { path: &staged, to: &path })?;
                self.touch(Id::Old(objectid::FIRST_FREE));
                let place = CurrentName::Home(first.clone());
                self.names.set_place(record.ino, place, record.is_directory());
                path
            }
            Some(CurrentName::Home(home)) => {
                missing.retain(|link| **link != home);
                self.path_of(&home)?
            }
            None => {
                let kept = record.links.iter().find(|link| !missing.contains(link));
                let kept = kept.ok_or(SendError::NoNames(record.ino))?;
                let directory = self.names.id(kept.parent);
                self.names.path_in(directory, kept.name.as_bytes())?
            }
        };
        for link in missing {
            let name = self.path_of(link)?;
            self.output.put(&Command::Link { path: &name, existing: &path })?;
        }
        Ok(path)
    }

    /// The names that an inode has now and had not before.
    pub(super) fn added_links<'r>(&self, record: &'r Record, was: &Record) -> Vec<&'r Link> {
        let had = |link: &Link| {
            let directory = self.names.id(link.parent);
            was.links.iter().any(|old| Id::Old(old.parent) == directory && old.name == link.name)
        };
        record.links.iter().filter(|link| !had(link)).collect()
    }

    /// The path of a new name in the snapshot. Its directory exists.
    fn path_of(&mut self, link: &Link) -> Result<Vec<u8>, SendError> {
        self.make_directory(link.parent)?;
        let directory = self.names.id(link.parent);
        self.touch(directory);
        self.names.path_in(directory, link.name.as_bytes())
    }

    /// Makes a directory, and those above it, if they do not exist yet.
    fn make_directory(&mut self, ino: u64) -> Result<(), SendError> {
        let mut missing: Vec<(u64, Link)> = Vec::new();
        let mut at = ino;
        while self.is_missing(at) {
            let link = directory_link(&self.new, at)?;
            let parent = link.parent;
            missing.push((at, link));
            // No path is so long; this ends a climb in circles.
            if missing.len() > usize::from(u16::MAX) {
                return Err(SendError::PathTooLong(ino));
            }
            at = parent;
        }
        for (ino, link) in missing.into_iter().rev() {
            let directory = self.names.id(link.parent);
            self.touch(directory);
            let path = self.names.path_in(directory, link.name.as_bytes())?;
            self.output.put(&Command::Mkdir { path: &path, ino })?;
            self.shed_inherited(&link, &path, FileType::Directory)?;
            self.made_ahead.insert(ino);
        }
        Ok(())
    }

    /// Whether a directory must still be made.
    fn is_missing(&self, ino: u64) -> bool {
        ino >= self.position
            && matches!(self.names.id(ino), Id::New(_))
            && !self.made_ahead.contains(&ino)
    }
}

/// An inode's device number in the form of user space: 12 bits of major above 20 of minor.
fn device_number(rdev: u64) -> u64 {
    let (major, minor) = (rdev >> 20, rdev & 0xf_ffff);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}
