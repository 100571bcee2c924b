//! The first step of an incremental send: it removes names that are gone, and moves what must move,
//! out of the way if the new place is not free yet.

use std::cmp::Reverse;

use larder_btree::Readahead;
use larder_filesystem::Link;
use larder_platform::OsStrExt;

use super::SendError;
use super::changes::{Change, Kind};
use super::names::{CurrentName, Id};
use super::record::{Record, Records};
use super::sender::Sender;
use crate::wire::Command;

impl Sender<'_> {
    /// Leaves only names that both snapshots have, and names out of the way.
    pub(super) fn clear(&mut self, changes: &[Change]) -> Result<(), SendError> {
        let Some(old) = self.old.clone() else { return Ok(()) };
        let mut before = Records::new(&old, Readahead::None);
        let mut now = Records::new(&self.new, Readahead::None);
        let mut emptied = Vec::new();
        for change in changes {
            match change.kind {
                Kind::Changed if change.names => {
                    let (was, record) = (before.get(change.ino)?, now.get(change.ino)?);
                    self.clear_changed(&was, &record)?;
                }
                Kind::Made | Kind::Changed => {}
                Kind::Removed | Kind::Replaced => {
                    let was = before.get(change.ino)?;
                    if was.is_directory() {
                        emptied.push((Reverse(self.names.old_depth(was.ino)?), was.ino));
                    } else {
                        self.unlink(&was.links)?;
                    }
                }
            }
        }
        // The content of a directory goes before it.
        emptied.sort_unstable();
        for (_, ino) in emptied {
            let path = self.names.directory(Id::Old(ino))?.to_vec();
            self.output.put(&Command::Rmdir { path: &path })?;
            let link = super::names::directory_link(&old, ino)?;
            self.touch(Id::Old(link.parent));
        }
        Ok(())
    }

    /// Removes the old names of a changed inode. One that loses all its names moves to a new one.
    fn clear_changed(&mut self, was: &Record, record: &Record) -> Result<(), SendError> {
        let added = self.added_links(record, was);
        let kept = record.links.len() - added.len();
        let lost: Vec<&Link> = was.links.iter().filter(|old| !self.has_link(record, old)).collect();
        let Some((first, others)) = lost.split_first() else { return Ok(()) };
        if kept > 0 {
            return self.unlink(lost);
        }
        let from = self.old_path(first)?;
        let mut home = None;
        for link in added {
            if self.is_free(link, record)? {
                home = Some(link);
                break;
            }
        }
        let (to, place) = if let Some(link) = home {
            let directory = self.names.id(link.parent);
            self.touch(directory);
            (self.names.path_in(directory, link.name.as_bytes())?, CurrentName::Home(link.clone()))
        } else {
            let name = self.names.unused_name(record.ino, record.item.generation.get())?;
            (name.clone(), CurrentName::Staged(name))
        };
        self.output.put(&Command::Rename { path: &from, to: &to })?;
        self.names.set_place(record.ino, place, record.is_directory());
        self.unlink(others.iter().copied())
    }

    /// Whether an inode still has an old name.
    fn has_link(&self, record: &Record, old: &Link) -> bool {
        let is_it = |link: &Link| {
            self.names.id(link.parent) == Id::Old(old.parent) && link.name == old.name
        };
        record.links.iter().any(is_it)
    }

    /// Whether an inode can move to a name at once: the directory exists, and not below the inode,
    /// and the parent has no such name in it.
    fn is_free(&self, link: &Link, record: &Record) -> Result<bool, SendError> {
        let directory = self.names.id(link.parent);
        let Id::Old(ino) = directory else { return Ok(false) };
        if self.names.was_taken(ino, link.name.as_bytes())? {
            return Ok(false);
        }
        Ok(!record.is_directory() || !self.names.is_within(directory, Id::Old(record.ino))?)
    }

    fn unlink<'l>(&mut self, links: impl IntoIterator<Item = &'l Link>) -> Result<(), SendError> {
        for link in links {
            let path = self.old_path(link)?;
            self.output.put(&Command::Unlink { path: &path })?;
        }
        Ok(())
    }

    /// The current path of a name of the parent that is about to go.
    fn old_path(&mut self, link: &Link) -> Result<Vec<u8>, SendError> {
        let directory = Id::Old(link.parent);
        self.touch(directory);
        self.names.path_in(directory, link.name.as_bytes())
    }
}
