//! The inodes that the kernel knows, by its numbers for them.
//!
//! # Invariants
//! - A node stays in the table as long as the kernel has looked it up more often than it forgot it.
//! - A node's number follows from its subvolume and inode number alone ([`super::numbers`]), so that
//!   it is the same in every mount. A directory that stands for a subvolume has a number of its own
//!   as long as the kernel knows it, and another one when it is looked up again. Two inodes never
//!   share a number: if they would, the second is refused. While the file system is mounted, no
//!   number is used twice; the generation tells a node from earlier ones with its number.
//! - An inode that only a listing showed is not open, nor one that was looked up while there were
//!   too many. The server opens it when the kernel first asks for more than its attributes, and
//!   before it serves a request that may remove the inode's last name: after that the inode could
//!   not be opened.
//! - No lock is held during calls of the library.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use larder::{
    Directory, ErrorKind, File, Filesystem, Inode, InodeFlags, Metadata, OpenFile, StandsIn,
    Subvolume,
};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::call::failed;
use super::forgotten::Forgotten;
use super::numbers::{STAND_INS, TOP_LEVEL, inode_of, is_stand_in, number_of};
use super::page_tail::PageTail;
use super::shown_blocks::ShownBlocks;
use crate::protocol::abi::ROOT_ID;

/// The attribute that gives a program capabilities. A change of the program removes it.
const CAPABILITY: &str = "security.capability";
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
/// The table has so many parts, each with a lock.
const SHARDS: usize = 64;
/// An open inode takes as much memory as so many that are not.
const LISTED_PER_OPEN: usize = 32;
/// An inode that the kernel knows.
#[derive(Debug)]
pub(super) struct FuseNode {
    pub(super) inode: Inode,
    /// It was seen to have no capabilities, which a write would have to remove.
    has_no_capability: AtomicBool,
    writers: Mutex<Writers>,
    pub(super) page_tail: PageTail,
    pub(super) blocks: ShownBlocks,
    /// The attributes that a directory which stands for a subvolume was given: in memory alone.
    pub(super) of_stand_in: Mutex<Option<Metadata>>,
    /// Where a listing of the directory ends; 0 before one began.
    listing_end: AtomicU64,
}

/// What an opening is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Access {
    Read,
    Write,
    /// Reading and writing: the file can be mapped for writing.
    ReadAndWrite,
}

/// An open file. The kernel gets it as the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) access: Access,
    /// The file was append-only: this handle allows no other writes as long as the file is.
    pub(super) only_appends: bool,
}

/// The handles of a file for writing.
#[derive(Debug, Default)]
struct Writers {
    count: u32,
    /// Handles that allow a mapping.
    can_map: u32,
    /// Open as long as there are handles.
    file: Option<OpenFile>,
}

/// An inode that the kernel knows, with its lookups.
#[derive(Debug)]
struct Known {
    inode: KnownInode,
    lookups: u64,
}

#[derive(Clone, Debug)]
enum KnownInode {
    Open(Arc<FuseNode>),
    /// It is not open.
    Listed(Listed),
}

/// An inode that is not open.
#[derive(Clone, Debug)]
struct Listed {
    subvolume: Subvolume,
    inode: u64,
    /// That of the node, if an earlier opening of the file system had it open.
    generation: Option<u32>,
}

/// A node as another opening of the file system can enter it: by numbers alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRecord {
    pub(super) id: u64,
    subvolume: u64,
    inode: u64,
    lookups: u64,
    generation: Option<u32>,
}

/// The table.
#[derive(Debug)]
pub(super) struct Nodes {
    shards: [Mutex<HashMap<u64, Known>>; SHARDS],
    /// The [weight](KnownInode::weight) of all in the shards.
    weight: AtomicUsize,
    root: Inode,
    /// The numbers of the directories that stand for subvolumes, of those that are in the shards.
    /// This lock comes before that of a shard.
    stand_ins: Mutex<HashMap<StandInPlace, u64>>,
    next_stand_in: AtomicU64,
    forgotten: Forgotten,
}

/// The subvolume with an entry for a subvolume that is not there, and the entry.
type StandInPlace = (u64, StandsIn);

fn place_of(inode: &Inode) -> Option<StandInPlace> {
    Some((inode.subvolume_id(), inode.stands_in()?))
}

/// The [generation](FuseNode::generation) of an inode in `subvolume`.
pub(super) fn generation_in(subvolume: &Subvolume, metadata: &Metadata) -> u32 {
    /// An odd factor: if either number differs, so does the result.
    const SPREAD: u32 = 0x9E37_79B9;
    let subvolume = subvolume.creation_generation() as u32;
    (metadata.generation as u32).wrapping_mul(SPREAD).wrapping_add(subvolume)
}

impl FuseNode {
    fn new(inode: Inode) -> Self {
        let (has_no_capability, writers, page_tail, blocks, listing_end) = Default::default();
        let of_stand_in = Mutex::default();
        Self { inode, has_no_capability, writers, page_tail, blocks, of_stand_in, listing_end }
    }

    /// Opens the file. Fails if `flags` ask for writing and that is not allowed.
    pub(super) fn open(&self, flags: u32) -> Result<Opening, Errno> {
        let access = Access::of_flags(flags);
        if access == Access::Read {
            return Ok(Opening { access, only_appends: false });
        }
        let appends = flags & OFlags::APPEND.bits() != 0;
        let file = self.file()?.open_for_writing(appends).map_err(failed)?;
        let mut writers = self.writers.lock();
        writers.count += 1;
        writers.can_map += u32::from(access == Access::ReadAndWrite);
        writers.file = Some(file);
        Ok(Opening { access, only_appends: self.is_append_only() })
    }

    /// Closes a handle for `access`.
    pub(super) fn close(&self, access: Access) {
        if access == Access::Read {
            return;
        }
        let mut writers = self.writers.lock();
        writers.count = writers.count.saturating_sub(1);
        writers.can_map = writers.can_map.saturating_sub(u32::from(access == Access::ReadAndWrite));
        let closed = if writers.count == 0 { writers.file.take() } else { None };
        // This may delete an orphan: not under the lock.
        drop(writers);
        drop(closed);
    }

    /// The index at which a listing of the directory ends. If it `begins`, that is `end_index`.
    pub(super) fn listing_end(
        &self,
        begins: bool,
        end_index: impl FnOnce() -> larder::Result<u64>,
    ) -> Result<u64, Errno> {
        let known = self.listing_end.load(Relaxed);
        if known != 0 && !begins {
            return Ok(known);
        }
        let end_index = end_index().map_err(failed)?;
        self.listing_end.store(end_index, Relaxed);
        Ok(end_index)
    }

    /// Whether existing content may not change.
    pub(super) fn is_append_only(&self) -> bool {
        self.inode.metadata().flags.contains(InodeFlags::APPEND)
    }

    /// The file, open for writing.
    pub(super) fn open_file(&self) -> Result<OpenFile, Errno> {
        self.writers.lock().file.clone().ok_or(Errno::BADF)
    }

    /// Whether a program has it open for writing.
    pub(super) fn is_open_for_writing(&self) -> bool {
        self.writers.lock().count > 0
    }

    /// Whether a program may have it mapped for writing.
    pub(super) fn may_be_mapped_for_writing(&self) -> bool {
        self.writers.lock().can_map > 0
    }

    /// The inode as a directory.
    pub(super) fn directory(&self) -> Result<Directory, Errno> {
        self.inode.clone().into_directory().map_err(failed)
    }

    /// The inode as a regular file.
    pub(super) fn file(&self) -> Result<File, Errno> {
        self.inode.clone().into_file().map_err(failed)
    }

    /// Whether a write has to remove capabilities.
    pub(super) fn may_have_capability(&self) -> Result<bool, Errno> {
        if self.has_no_capability.load(Relaxed) {
            return Ok(false);
        }
        match self.inode.xattr(CAPABILITY) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoSuchAttribute => {
                self.has_no_capability.store(true, Relaxed);
                Ok(false)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether it has setuid or setgid.
    pub(super) fn has_set_id_bits(&self) -> bool {
        self.inode.metadata().mode & (S_ISUID | S_ISGID) != 0
    }

    /// An extended attribute was set.
    pub(super) fn has_new_attribute(&self) {
        self.has_no_capability.store(false, Relaxed);
    }

    /// Tells it from inodes that had its number before the file system was mounted: by the time an
    /// inode was made or, in a snapshot, by the time of the snapshot, since its inodes are as old
    /// as the originals. File handles contain it.
    pub(super) fn generation(&self, metadata: &Metadata) -> u32 {
        generation_in(self.inode.subvolume(), metadata)
    }

    /// Its number as programs see it.
    pub(super) fn number(&self) -> u64 {
        if self.inode.is_empty_subvolume() {
            return self.inode.number();
        }
        number_of(self.inode.subvolume_id(), self.inode.number())
    }
}

impl Access {
    /// The access that the flags of open(2) ask for.
    fn of_flags(flags: u32) -> Self {
        let flags = OFlags::from_bits_retain(flags) & OFlags::ACCMODE;
        match flags {
            OFlags::RDONLY => Self::Read,
            OFlags::WRONLY => Self::Write,
            _ => Self::ReadAndWrite,
        }
    }
}

impl Opening {
    /// The bit of a handle besides the number of its access.
    const ONLY_APPENDS: u64 = 1 << 2;

    pub(super) fn of_handle(handle: u64) -> Option<Self> {
        [Access::Read, Access::Write, Access::ReadAndWrite]
            .into_iter()
            .flat_map(|access| [false, true].map(|only_appends| Self { access, only_appends }))
            .find(|opening| opening.handle() == handle)
    }

    pub(super) fn handle(self) -> u64 {
        self.access as u64 | if self.only_appends { Self::ONLY_APPENDS } else { 0 }
    }

    /// Whether reads and writes bypass the page cache, so that no program maps the file shared: a
    /// mapping could change existing content.
    pub(super) fn is_direct(self) -> bool {
        self.only_appends && self.access == Access::ReadAndWrite
    }
}

impl Nodes {
    pub(super) fn new(root: Inode) -> Self {
        let nodes = Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            weight: AtomicUsize::new(LISTED_PER_OPEN),
            root: root.clone(),
            stand_ins: Mutex::default(),
            next_stand_in: AtomicU64::new(STAND_INS),
            forgotten: Forgotten::default(),
        };
        let known = Known { inode: KnownInode::Open(Arc::new(FuseNode::new(root))), lookups: 1 };
        nodes.shard(ROOT_ID).lock().insert(ROOT_ID, known);
        nodes
    }

    /// The root of the mount.
    pub(super) fn root(&self) -> &Inode {
        &self.root
    }

    /// The node that the kernel knows as `id`.
    pub(super) fn get(&self, id: u64) -> Result<Arc<FuseNode>, Errno> {
        match self.known(id)? {
            KnownInode::Open(node) => Ok(node),
            KnownInode::Listed(listed) => self.open(id, listed.open()?).ok_or(Errno::STALE),
        }
    }

    /// The node that the kernel knows as `id`, for one reply. If it is not open, it stays so.
    pub(super) fn peek(&self, id: u64) -> Result<Arc<FuseNode>, Errno> {
        match self.known(id)? {
            KnownInode::Open(node) => Ok(node),
            KnownInode::Listed(listed) => Ok(Arc::new(FuseNode::new(listed.open()?))),
        }
    }

    fn known(&self, id: u64) -> Result<KnownInode, Errno> {
        let shard = self.shard(id).lock();
        shard.get(&id).map(|known| known.inode.clone()).ok_or(Errno::STALE)
    }

    /// Whether the kernel knows a node as `id`.
    pub(super) fn knows(&self, id: u64) -> bool {
        self.shard(id).lock().contains_key(&id)
    }

    /// Opens an inode that a listing showed, because it may be about to lose its last name.
    pub(super) fn keep(&self, inode: Inode) {
        self.open(self.id_of(&inode), inode);
    }

    /// The node that the kernel knows as `id`, if it is that of `inode`. Opens it with `inode` if
    /// it is not open.
    fn open(&self, id: u64, inode: Inode) -> Option<Arc<FuseNode>> {
        let mut shard = self.shard(id).lock();
        let known = shard.get_mut(&id).filter(|known| known.is(&inode))?;
        Some(self.opened(known, inode))
    }

    /// The inode that the kernel knows as `id`, or knew before it forgot it.
    pub(super) fn known_or_forgotten(&self, id: u64, fs: &Filesystem) -> Result<Inode, Errno> {
        if let Ok(known) = self.get(id) {
            return Ok(known.inode.clone());
        }
        let (subvolume, inode) = inode_of(id).ok_or(Errno::STALE)?;
        let found = fs.subvolume_by_id(subvolume).and_then(|subvolume| subvolume.inode(inode));
        found.map_err(failed)
    }

    /// Whether an inode lies above the mount: the root of the top level, if a subvolume is mounted.
    pub(super) fn is_above_root(&self, inode: &Inode) -> bool {
        inode.is_subvolume_root() && inode.subvolume_id() == TOP_LEVEL && *inode != self.root
    }

    /// Counts a lookup of `inode`, and returns its number and node.
    pub(super) fn look_up(&self, inode: Inode) -> Result<(u64, Arc<FuseNode>), Errno> {
        let Some(place) = place_of(&inode) else { return self.enter(self.id_of(&inode), inode) };
        let mut stand_ins = self.stand_ins.lock();
        let id = *stand_ins.entry(place).or_insert_with(|| self.unused_stand_in());
        self.enter(id, inode)
    }

    fn enter(&self, id: u64, inode: Inode) -> Result<(u64, Arc<FuseNode>), Errno> {
        let mut shard = self.shard(id).lock();
        let Some(known) = shard.get_mut(&id) else {
            let node = Arc::new(FuseNode::new(inode));
            let inode = KnownInode::Open(node.clone());
            self.weight.fetch_add(inode.weight(), Relaxed);
            shard.insert(id, Known { inode, lookups: 1 });
            return Ok((id, node));
        };
        if !known.is(&inode) {
            return Err(Errno::OVERFLOW);
        }
        known.lookups += 1;
        Ok((id, self.opened(known, inode)))
    }

    /// The node of `inode`, which is that of `known`. Opened now if it was not.
    fn opened(&self, known: &mut Known, inode: Inode) -> Arc<FuseNode> {
        if let KnownInode::Open(node) = &known.inode {
            return node.clone();
        }
        let node = Arc::new(FuseNode::new(inode));
        let listed = std::mem::replace(&mut known.inode, KnownInode::Open(node.clone()));
        self.weight.fetch_add(known.inode.weight() - listed.weight(), Relaxed);
        node
    }

    /// The node with this number, if it is open.
    pub(super) fn open_node(&self, id: u64) -> Option<Arc<FuseNode>> {
        match self.known(id).ok()? {
            KnownInode::Open(node) => Some(node),
            KnownInode::Listed(_) => None,
        }
    }

    /// Counts a lookup of `inode`, which is no directory, and opens no node for it. Returns the
    /// number, and a node for the reply.
    pub(super) fn look_up_unopened(&self, inode: Inode) -> Result<(u64, Arc<FuseNode>), Errno> {
        let id = self.look_up_listed(inode.subvolume(), inode.number())?;
        match self.known(id)? {
            KnownInode::Open(node) => Ok((id, node)),
            KnownInode::Listed(_) => Ok((id, Arc::new(FuseNode::new(inode)))),
        }
    }

    /// Counts a lookup of an inode that a listing shows and that is no directory, and returns its
    /// number.
    pub(super) fn look_up_listed(&self, subvolume: &Subvolume, inode: u64) -> Result<u64, Errno> {
        let id = number_of(subvolume.id(), inode);
        let mut shard = self.shard(id).lock();
        let Some(known) = shard.get_mut(&id) else {
            let inode = KnownInode::Listed(Listed {
                subvolume: subvolume.clone(),
                inode,
                generation: None,
            });
            self.weight.fetch_add(inode.weight(), Relaxed);
            shard.insert(id, Known { inode, lookups: 1 });
            return Ok(id);
        };
        if known.location() != (subvolume.id(), inode) {
            return Err(Errno::OVERFLOW);
        }
        known.lookups += 1;
        Ok(id)
    }

    /// The kernel forgets `lookups` of its lookups.
    pub(super) fn forget(&self, id: u64, lookups: u64) {
        let mut stand_ins = is_stand_in(id).then(|| self.stand_ins.lock());
        let mut shard = self.shard(id).lock();
        let Some(known) = shard.get_mut(&id) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0 && id != ROOT_ID {
            let forgotten = shard.remove(&id);
            let weight = forgotten.as_ref().map_or(0, |known| known.inode.weight());
            self.weight.fetch_sub(weight, Relaxed);
            if let Some(stand_ins) = &mut stand_ins
                && let Some(KnownInode::Open(node)) = forgotten.as_ref().map(|it| &it.inode)
                && let Some(place) = place_of(&node.inode)
            {
                stand_ins.remove(&place);
            }
            // This may delete an orphan: not under the lock.
            drop((shard, stand_ins));
            drop(forgotten);
            self.forgotten.note();
        }
    }

    /// Waits until the kernel has forgotten `id`, which it does after all below a directory. A
    /// program that uses the directory keeps it: then the kernel forgets no inode for `silence`.
    pub(super) fn wait_until_forgotten(&self, id: u64, silence: Duration, patience: Duration) {
        self.forgotten.wait_until(|| !self.knows(id), silence, patience);
    }

    /// The nodes of these subvolumes, as pairs of a subvolume and a node's number.
    pub(super) fn of_subvolumes(&self, subvolumes: &[u64]) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for (id, known) in shard.lock().iter() {
                let (subvolume, _) = known.location();
                if subvolumes.contains(&subvolume) {
                    found.push((subvolume, *id));
                }
            }
        }
        found
    }

    /// How many nodes there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// How many open nodes would take as much memory as all nodes do.
    pub(super) fn count_as_open(&self) -> usize {
        self.weight.load(Relaxed) / LISTED_PER_OPEN
    }

    /// The numbers of all nodes except the root, shard by shard: first those that are open.
    pub(super) fn ids(&self) -> impl Iterator<Item = Vec<u64>> {
        let of_kind = |shard: &Mutex<HashMap<u64, Known>>, is_open: bool| {
            let shard = shard.lock();
            let of_kind = shard.iter().filter(|(id, known)| {
                matches!(known.inode, KnownInode::Open(_)) == is_open && **id != ROOT_ID
            });
            of_kind.map(|(id, _)| *id).collect()
        };
        [true, false]
            .into_iter()
            .flat_map(move |is_open| self.shards.iter().map(move |shard| of_kind(shard, is_open)))
    }

    /// All open nodes, with the numbers that the kernel knows them by.
    pub(super) fn open_nodes(&self) -> impl Iterator<Item = (u64, Arc<FuseNode>)> {
        let open = |(id, known): (&u64, &Known)| match &known.inode {
            KnownInode::Open(node) => Some((*id, node.clone())),
            KnownInode::Listed(_) => None,
        };
        let of_shard = move |shard: &Mutex<HashMap<u64, Known>>| -> Vec<_> {
            shard.lock().iter().filter_map(open).collect()
        };
        self.shards.iter().flat_map(of_shard)
    }

    /// The kernel forgets everything.
    pub(super) fn forget_all(&self) {
        self.stand_ins.lock().clear();
        for shard in &self.shards {
            let forgotten = std::mem::take(&mut *shard.lock());
            let weight = forgotten.values().map(|known| known.inode.weight()).sum();
            self.weight.fetch_sub(weight, Relaxed);
            // This may delete orphans: not under the lock.
            drop(forgotten);
        }
    }

    /// All nodes that the kernel knows.
    pub(super) fn records(&self) -> Vec<NodeRecord> {
        let record = |(id, known): (&u64, &Known)| {
            let (subvolume, inode) = known.location();
            let generation = known.generation();
            NodeRecord { id: *id, subvolume, inode, lookups: known.lookups, generation }
        };
        let shards = self.shards.iter();
        shards.flat_map(|shard| shard.lock().iter().map(record).collect::<Vec<_>>()).collect()
    }

    /// The number of the next directory that stands for a subvolume.
    pub(super) fn next_stand_in(&self) -> u64 {
        self.next_stand_in.load(Relaxed)
    }

    /// Enters the nodes of another opening of `filesystem`. An inode that is gone, or of which another
    /// has the number now, is stale from now on. So is a directory that stands for a subvolume: the
    /// kernel looks it up again.
    pub(super) fn take_over(
        &self,
        filesystem: &Filesystem,
        records: &[NodeRecord],
        next_stand_in: u64,
    ) {
        self.next_stand_in.store(next_stand_in, Relaxed);
        let mut subvolumes = HashMap::new();
        for record in records.iter().filter(|it| it.id != ROOT_ID && !is_stand_in(it.id)) {
            let subvolume = subvolumes
                .entry(record.subvolume)
                .or_insert_with_key(|id| filesystem.subvolume_by_id(*id).ok());
            let Some(subvolume) = subvolume.clone() else { continue };
            let NodeRecord { inode, generation, lookups, .. } = *record;
            let inode = KnownInode::Listed(Listed { subvolume, inode, generation });
            self.weight.fetch_add(inode.weight(), Relaxed);
            self.shard(record.id).lock().insert(record.id, Known { inode, lookups });
        }
    }

    /// The number under which the kernel knows an inode, or would know it.
    pub(super) fn id_of(&self, inode: &Inode) -> u64 {
        if *inode == self.root {
            return ROOT_ID;
        }
        if let Some(place) = place_of(inode) {
            let known = self.stand_ins.lock().get(&place).copied();
            return known.unwrap_or_else(|| self.unused_stand_in());
        }
        number_of(inode.subvolume_id(), inode.number())
    }

    fn unused_stand_in(&self) -> u64 {
        self.next_stand_in.fetch_add(1, Relaxed)
    }

    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[id as usize % SHARDS]
    }
}

impl Listed {
    fn open(&self) -> Result<Inode, Errno> {
        let inode = self.subvolume.inode(self.inode).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Errno::STALE,
            _ => failed(error),
        })?;
        let is_it = |generation| generation_in(&self.subvolume, &inode.metadata()) == generation;
        if self.generation.is_none_or(is_it) { Ok(inode) } else { Err(Errno::STALE) }
    }
}

impl KnownInode {
    /// Its share of the table's memory.
    fn weight(&self) -> usize {
        match self {
            Self::Open(_) => LISTED_PER_OPEN,
            Self::Listed(_) => 1,
        }
    }
}

impl Known {
    /// Its subvolume and inode number.
    fn location(&self) -> (u64, u64) {
        match &self.inode {
            KnownInode::Open(node) => (node.inode.subvolume_id(), node.inode.number()),
            KnownInode::Listed(listed) => (listed.subvolume.id(), listed.inode),
        }
    }

    /// The generation of the node, if it is known without a look at the file system.
    fn generation(&self) -> Option<u32> {
        match &self.inode {
            KnownInode::Open(node) => Some(node.generation(&node.inode.metadata())),
            KnownInode::Listed(listed) => listed.generation,
        }
    }

    fn is(&self, inode: &Inode) -> bool {
        match &self.inode {
            KnownInode::Open(node) => node.inode == *inode,
            KnownInode::Listed(_) => self.location() == (inode.subvolume_id(), inode.number()),
        }
    }
}
