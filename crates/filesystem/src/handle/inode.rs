//! The handle of an inode.

use std::ffi::OsStr;
use std::sync::Arc;

use larder_btree::Readahead;
use larder_format::item::InodeItem;
use larder_format::{ItemType, Key, objectid};
use larder_platform::OsStrExt;
use zerocopy::FromZeros;

use crate::change::changeable::Changeable;
use crate::core::shared::Core;
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::handle::directory::Directory;
use crate::handle::file::File;
use crate::handle::subvolume::Subvolume;
use crate::item::links::{Link, links_of_item};
use crate::item::metadata::{FileType, Metadata, parse_item};
use crate::live::inode::LiveInode;
use crate::live::open::OpenInode;
use crate::live::subvolume::LiveSubvolume;

/// The kernel's number for a directory that stands for a subvolume which is not there.
const EMPTY_SUBVOLUME: u64 = 2;

/// A file, directory, symbolic link, device node, pipe or socket, with its attributes: as committed
/// or, in a file system that is open for writing, current. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Inode {
    pub(crate) subvolume: Subvolume,
    pub(crate) number: u64,
    attributes: Attributes,
    pub(crate) file_type: FileType,
    stands_in: Option<StandsIn>,
    is_lost: bool,
}

/// The entry that a directory stands at, for a subvolume that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StandsIn {
    /// Number of the directory that has the entry.
    pub directory: u64,
    /// Id of the subvolume that the entry names.
    pub subvolume: u64,
}

/// Where an inode's attributes are.
#[derive(Clone, Debug)]
enum Attributes {
    /// Here. They never change.
    Committed(InodeItem),
    /// In the live inode, which all handles share.
    Live(OpenInode),
}

impl Subvolume {
    /// The inode of this number in this subvolume, not in a nested one.
    pub fn inode(&self, number: u64) -> Result<Inode> {
        if let Some(writer) = self.filesystem().try_writer()
            && let Some(subvolume) = self.try_live()
        {
            let live = writer.inodes().open(subvolume, number)?;
            return Ok(Inode::of_live_inode(self.clone(), live));
        }
        let key = Key::new(number, ItemType::INODE_ITEM, 0);
        let bytes = self.view().get(key)?.ok_or(Error::NotFound)?;
        let (item, file_type) =
            parse_item(&bytes).map_err(|problem| self.bad_item(key, problem))?;
        let attributes = Attributes::Committed(*item);
        let (stands_in, is_lost) = Default::default();
        Ok(Inode { subvolume: self.clone(), number, attributes, file_type, stands_in, is_lost })
    }

    /// The inode of this number, which an entry calls a directory. Readers that do without trees
    /// also get one whose attributes are lost: it leads to names.
    pub(crate) fn directory_inode(&self, number: u64) -> Result<Inode> {
        let core = self.filesystem().core();
        let may_be_lost = core.try_writer().is_none() && core.volume().rescue().ignore_bad_roots;
        self.inode(number).or_else(|error| {
            if may_be_lost { Ok(Inode::lost_directory(self, number)) } else { Err(error) }
        })
    }

    /// Whether tree blocks are lost that may have had items of the inode of this number, or may have
    /// said that there is none.
    pub fn doubts(&self, number: u64) -> bool {
        self.filesystem().volume().doubts(self.id(), number)
    }

    /// Its root directory.
    pub fn root(&self) -> Result<Directory> {
        self.directory_inode(objectid::FIRST_FREE)?.into_directory()
    }
}

impl Inode {
    /// An inode of a file system that is open for writing.
    pub(crate) fn of_live_inode(subvolume: Subvolume, live: OpenInode) -> Self {
        let (number, file_type) = (live.number(), live.file_type());
        let attributes = Attributes::Live(live);
        Self { subvolume, number, attributes, file_type, stands_in: None, is_lost: false }
    }

    /// Whether tree blocks are lost that may have had items of it: then something of it may be
    /// missing, or as it was in an earlier commit.
    pub fn is_in_doubt(&self) -> bool {
        self.subvolume.doubts(self.number)
    }

    /// A directory whose attributes are lost. Nobody but root may look in.
    fn lost_directory(subvolume: &Subvolume, number: u64) -> Self {
        let mut item = InodeItem::new_zeroed();
        item.mode = 0o040_700.into();
        item.nlink = 1.into();
        Self {
            subvolume: subvolume.clone(),
            number,
            attributes: Attributes::Committed(item),
            file_type: FileType::Directory,
            stands_in: None,
            is_lost: true,
        }
    }

    /// The live inode, which all handles share; none if it cannot change.
    pub(crate) fn try_live_inode(&self) -> Option<&Arc<LiveInode>> {
        match &self.attributes {
            Attributes::Live(live) => Some(live),
            Attributes::Committed(_) => None,
        }
    }

    /// The live inode, which all handles share.
    pub(crate) fn live_inode(&self) -> Result<&Arc<LiveInode>> {
        if let Some(live) = self.try_live_inode() {
            return Ok(live);
        }
        self.writer()?;
        if self.is_empty_subvolume() {
            return Err(Error::NotPermitted("it stands for a subvolume that is not there"));
        }
        Err(Error::NotWritable)
    }

    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.subvolume().filesystem().writer()
    }

    /// Refuses to list or change names in a directory that was removed, or in the root of a deleted
    /// subvolume. To change something the caller has a handle.
    pub(crate) fn check_not_removed(&self) -> Result<()> {
        let is_deleted = self.subvolume().try_live().is_some_and(LiveSubvolume::is_deleted);
        let is_removed = is_deleted && self.is_subvolume_root();
        if is_removed { Err(Error::NotFound) } else { Ok(()) }
    }

    /// A handle of a live inode.
    pub(crate) fn open_inode(&self) -> Result<&OpenInode> {
        match &self.attributes {
            Attributes::Live(live) => Ok(live),
            Attributes::Committed(_) => self.live_inode().and(Err(Error::NotWritable)),
        }
    }

    /// The inode, with what changes of it need.
    pub(crate) fn changeable(&self) -> Result<Changeable<'_>> {
        let live = self.live_inode()?;
        let (core, subvolume) = (self.core(), self.subvolume().live()?);
        Ok(Changeable { core, writer: core.writer()?, subvolume, live })
    }

    /// The empty directory that stands where `directory` has an entry for a subvolume that is not
    /// there: the subvolume `id` was nested in the origin of a snapshot.
    pub(crate) fn empty_subvolume(directory: &Self, id: u64) -> Self {
        let mut item = InodeItem::new_zeroed();
        item.mode = 0o040_755.into();
        item.nlink = 1.into();
        Self {
            subvolume: directory.subvolume.clone(),
            number: EMPTY_SUBVOLUME,
            attributes: Attributes::Committed(item),
            file_type: FileType::Directory,
            stands_in: Some(StandsIn { directory: directory.number, subvolume: id }),
            is_lost: false,
        }
    }

    /// Gives a directory that stands for a subvolume the owner of `directory`, whose state is not
    /// locked.
    pub(crate) fn owned_as(mut self, directory: &Self) -> Self {
        if self.is_empty_subvolume()
            && let Attributes::Committed(item) = &mut self.attributes
        {
            let owner = directory.item();
            (item.uid, item.gid) = (owner.uid, owner.gid);
        }
        self
    }

    /// The subvolume that it belongs to.
    pub fn subvolume(&self) -> &Subvolume {
        &self.subvolume
    }

    /// The file system below its handles.
    pub(crate) fn core(&self) -> &Core {
        self.subvolume.filesystem().core()
    }

    /// Id of the subvolume that it belongs to.
    pub fn subvolume_id(&self) -> u64 {
        self.subvolume.id()
    }

    /// Its number, unique within the subvolume.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its type.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Its inode item.
    #[doc(hidden)]
    pub fn item(&self) -> InodeItem {
        match &self.attributes {
            Attributes::Committed(item) => *item,
            Attributes::Live(live) => live.item(),
        }
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.try_live_inode().map_or(0, |live| live.dirty_bytes())
    }

    /// Its attributes.
    pub fn metadata(&self) -> Metadata {
        let sectorsize = self.subvolume.filesystem().core().sectorsize();
        let (id, dirty_bytes) = (self.subvolume.id(), self.dirty_bytes());
        let metadata = Metadata::new(id, self.number, self.file_type, &self.item(), sectorsize);
        Metadata { dirty_bytes, ..metadata }
    }

    /// All its names. The root of a subvolume has one without a meaning. Names in the same directory
    /// come together, unless there are very many.
    pub fn links(&self) -> Result<Vec<Link>> {
        let range = self.key(ItemType::INODE_REF, 0)..=self.key(ItemType::INODE_EXTREF, u64::MAX);
        let mut items = self.subvolume.view().range(range, Readahead::Forward);
        let mut links = Vec::new();
        while let Some((key, bytes)) = items.next_item()? {
            links_of_item(key, bytes, |parent, index, name| {
                links.push(Link { parent, index, name: OsStr::from_bytes(name).to_owned() });
            })
            .map_err(|problem| self.subvolume.bad_item(key, problem))?;
        }
        Ok(links)
    }

    /// Whether it is an empty directory that stands for a subvolume which is not there: a snapshot
    /// shows it where a subvolume was nested in its origin. It is on no disk and has number 2.
    pub fn is_empty_subvolume(&self) -> bool {
        self.stands_in.is_some()
    }

    /// Whether it is a directory whose attributes are lost: those that it has are made up. Only
    /// readers that do without trees ([`Rescue`](larder_volume::Rescue)) see it.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether it is the root directory of a subvolume.
    pub fn is_subvolume_root(&self) -> bool {
        self.number == objectid::FIRST_FREE
    }

    /// Size in bytes.
    #[doc(hidden)]
    pub fn size_bytes(&self) -> u64 {
        self.item().size.get()
    }

    /// The inode as a regular file.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` for an inode that is neither a file nor a directory.
    pub fn into_file(self) -> Result<File> {
        match self.file_type {
            FileType::Regular => Ok(File { inode: self }),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }

    /// The inode as a directory.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn into_directory(self) -> Result<Directory> {
        self.expect_directory()?;
        Ok(Directory { inode: self })
    }

    /// The subvolume whose root the inode is.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn into_subvolume(self) -> Result<Subvolume> {
        if self.is_subvolume_root() { Ok(self.subvolume) } else { Err(Error::NotASubvolume) }
    }

    /// The entry that this directory stands at, if it stands for a subvolume that is not there.
    #[doc(hidden)]
    pub fn stands_in(&self) -> Option<StandsIn> {
        self.stands_in
    }

    pub(crate) fn expect_directory(&self) -> Result<()> {
        if self.file_type == FileType::Directory { Ok(()) } else { Err(Error::NotADirectory) }
    }

    pub(crate) fn key(&self, item_type: ItemType, offset: u64) -> Key {
        Key::new(self.number, item_type, offset)
    }
}

impl PartialEq for Inode {
    /// Whether both are the same inode of the same subvolume.
    fn eq(&self, other: &Self) -> bool {
        (self.number, self.stands_in) == (other.number, other.stands_in)
            && self.subvolume == other.subvolume
    }
}

impl Eq for Inode {}
