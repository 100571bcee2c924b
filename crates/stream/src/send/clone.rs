//! Finding data that a receiver can clone instead of getting it.
//!
//! The extent tree lists the references to an extent, by tree, inode and offset. Each is a hint
//! only: trees change, and snapshots share references to their source. So every hint is checked in
//! the trees that the receiver has.
//!
//! # Invariants
//! - A range is cloned only from a file that the receiver has at this point of the stream, with the
//!   same part of the same extent: from a parent or clone source, which never change, or from a
//!   file of this stream whose content is complete.
//! - No error in references or other files stops a send: data without a clone source is sent.

use larder_btree::{Readahead, TreeView};
use larder_filesystem::{Error, ExtentContent, Inode, Link, Paths, Subvolume};
use larder_format::item::{BackRef, Extent};
use larder_format::{FormatError, ItemType, Key, Logical, Uuid, objectid};
use larder_platform::{OsStrExt, OsStringExt};

use super::SendError;
use super::names::Names;
use super::origin_of;
use super::record::bad_item;
use crate::receive::Origin;

/// References of one extent to check: if there are many, one of the first is right.
const HINTS: usize = 32;

/// The source of a range for the receiver.
pub(super) struct CloneSource {
    pub(super) uuid: Uuid,
    pub(super) ctransid: u64,
    pub(super) path: Vec<u8>,
    pub(super) offset: u64,
    pub(super) len_bytes: u64,
}

/// A range of a file to send.
#[derive(Clone, Copy)]
pub(super) struct RangeToSend<'a> {
    pub(super) inode: &'a Inode,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) extent: &'a larder_filesystem::MappedRange,
}

/// A file and an offset that may refer to an extent.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Hint {
    ino: u64,
    /// File offset minus offset in the extent (wrapping).
    offset: u64,
}

/// The snapshots that the receiver has, and the one that is sent.
pub(super) struct CloneSources {
    sent: Subvolume,
    others: Vec<(Subvolume, Paths)>,
    /// The extent tree, if there is one.
    extent_tree: Option<TreeView>,
    /// The last extent that was looked up, and the references to it.
    last: Option<(Logical, Vec<Hint>)>,
}

impl CloneSources {
    pub(super) fn new(sent: &Subvolume, others: impl Iterator<Item = Subvolume>) -> Self {
        let others = others.map(|other| (other.clone(), other.paths())).collect();
        let extent_tree = sent.filesystem().tree(objectid::EXTENT_TREE).ok();
        Self { sent: sent.clone(), others, extent_tree, last: None }
    }

    /// The receiver's source for the start of a range. `is_complete` says for which files of this
    /// stream the content is complete.
    pub(super) fn find(
        &mut self,
        wanted: &RangeToSend<'_>,
        names: &mut Names,
        is_complete: impl Fn(u64) -> bool,
    ) -> Option<CloneSource> {
        let ExtentContent::Data(disk) = &wanted.extent.content else { return None };
        if self.last.as_ref().is_none_or(|(logical, _)| *logical != disk.logical) {
            let hints = self.hints(disk.logical, disk.disk_bytes).unwrap_or_default();
            self.last = Some((disk.logical, hints));
        }
        let within = disk.offset_bytes + (wanted.start - wanted.extent.start.0);
        let hints = self.last.iter().flat_map(|(_, hints)| hints);
        for hint in hints {
            let offset = hint.offset.wrapping_add(within);
            let is_here = hint.ino == wanted.inode.number();
            if is_here || is_complete(hint.ino) {
                let before = if is_here { wanted.start } else { u64::MAX };
                if let Ok(Some((file, len_bytes))) =
                    shared_range(&self.sent, hint.ino, offset, before, wanted)
                {
                    let Ok(Some(path)) = path_now(&file, names) else { continue };
                    let Origin { uuid, ctransid } = origin_of(&self.sent);
                    return Some(CloneSource { uuid, ctransid, path, offset, len_bytes });
                }
            }
            for (source, paths) in &mut self.others {
                if let Ok(Some((file, len_bytes))) =
                    shared_range(source, hint.ino, offset, u64::MAX, wanted)
                {
                    let Ok(Some(link)) = first_link(&file) else { continue };
                    let Ok(path) = paths.of(&link) else { continue };
                    let path = path.into_os_string().into_vec();
                    let Origin { uuid, ctransid } = origin_of(source);
                    return Some(CloneSource { uuid, ctransid, path, offset, len_bytes });
                }
            }
        }
        None
    }

    /// The references to an extent; none if it has only one.
    fn hints(&self, logical: Logical, disk_bytes: u64) -> Result<Vec<Hint>, Error> {
        let Some(tree) = &self.extent_tree else { return Ok(Vec::new()) };
        let key = Key::new(logical.0, ItemType::EXTENT_ITEM, disk_bytes);
        let Some(item) = tree.get(key)? else { return Ok(Vec::new()) };
        let bad = |key: Key, problem: FormatError| Error::Item {
            tree: objectid::EXTENT_TREE,
            key,
            problem,
        };
        let extent = Extent::parse(key, &item).map_err(|problem| bad(key, problem))?;
        if extent.item.refs.get() < 2 {
            return Ok(Vec::new());
        }
        let mut hints = Vec::new();
        for inline in extent.back_refs().take(HINTS) {
            let inline = inline.map_err(|problem| bad(key, problem))?;
            hints.extend(Hint::of(&inline.back_ref));
        }
        let keyed = |offset| Key::new(logical.0, ItemType::EXTENT_DATA_REF, offset);
        let mut items = tree.range(keyed(0)..=keyed(u64::MAX), Readahead::None);
        while hints.len() < HINTS
            && let Some((key, bytes)) = items.next_item()?
        {
            let back_ref = BackRef::parse_keyed(key, bytes).map_err(|problem| bad(key, problem))?;
            hints.extend(Hint::of(&back_ref));
        }
        hints.sort_unstable_by_key(|hint| (hint.ino, hint.offset));
        hints.dedup();
        Ok(hints)
    }
}

impl Hint {
    fn of(back_ref: &BackRef) -> Option<Self> {
        match *back_ref {
            BackRef::Data { objectid: ino, offset, .. } => Some(Self { ino, offset }),
            _ => None,
        }
    }
}

/// The file `ino` of `source`, and how much of the start of the wanted range it shares at `offset`,
/// if that can be cloned: whole sectors, or up to the ends of both files. Nothing from `before` on
/// counts.
fn shared_range(
    source: &Subvolume,
    ino: u64,
    offset: u64,
    before: u64,
    wanted: &RangeToSend<'_>,
) -> Result<Option<(Inode, u64)>, Error> {
    let sectorsize = u64::from(source.filesystem().volume().sectorsize());
    let file = source.inode(ino)?;
    let is_apart = (wanted.inode.subvolume().id(), wanted.inode.number()) != (source.id(), ino);
    let end = file.size_bytes().min(before);
    if offset >= end || file.item().nlink.get() == 0 || !offset.is_multiple_of(sectorsize) {
        return Ok(None);
    }
    let Some(extent) = file.clone().into_file()?.mapped_from(offset)?.next().transpose()? else {
        return Ok(None);
    };
    let (ExtentContent::Data(theirs), ExtentContent::Data(ours)) =
        (&extent.content, &wanted.extent.content)
    else {
        return Ok(None);
    };
    let theirs = (theirs.logical, theirs.offset_bytes + (offset - extent.start.0));
    let ours = (ours.logical, ours.offset_bytes + (wanted.start - wanted.extent.start.0));
    if theirs != ours {
        return Ok(None);
    }
    let len_bytes = (wanted.end - wanted.start).min(extent.end().min(end) - offset);
    let is_to_both_ends = is_apart
        && offset + len_bytes == file.size_bytes()
        && wanted.start + len_bytes == wanted.inode.size_bytes();
    let whole_bytes = len_bytes - len_bytes % sectorsize;
    let len_bytes = if is_to_both_ends { len_bytes } else { whole_bytes };
    Ok((len_bytes > 0).then_some((file, len_bytes)))
}

/// A current path of a file of this stream.
fn path_now(file: &Inode, names: &mut Names) -> Result<Option<Vec<u8>>, SendError> {
    let Some(link) = first_link(file)? else { return Ok(None) };
    let directory = names.id(link.parent);
    names.path_in(directory, link.name.as_bytes()).map(Some)
}

fn first_link(file: &Inode) -> Result<Option<Link>, Error> {
    let link = file.links()?.into_iter().next();
    if let Some(link) = &link {
        let key = Key::new(file.number(), ItemType::INODE_REF, link.parent);
        super::record::check_name(link.name.as_bytes())
            .map_err(|problem| bad_item(file.subvolume(), key, problem))?;
    }
    Ok(link)
}
