//! File systems that are mounted: the kernel's btrfs, or larder through FUSE.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_filesystem::{
    Capacity, FilePlace, GlobalReserve, QuotaGroup, Spaces, SubvolumeInfo, SubvolumeItems,
    choose_for_balance,
};
use larder_format::item::{BlockGroupItem, Chunk as ChunkItem, InodeRefs};
use larder_format::{
    BlockGroupFlags, FormatError, ItemType, Key, Logical, name_hash, objectid, read_exact_item,
};
use larder_ioctl::abi::GLOBAL_RESERVE;
use larder_volume::Chunk;

use crate::{
    BalanceItem, ChosenGroup, DeviceInfo, Error, KeyedItems, Overview, Result, Space, Uuid,
};

/// What the kernel calls a missing device that it has known. One that it has not has no name.
const MISSING: &[u8] = b"<missing disk>";

/// A mounted file system, asked by ioctls of btrfs. Most of them need root; a mount of larder also
/// answers the user who mounted it.
#[derive(Debug)]
pub struct MountedFilesystem {
    inside: File,
}

impl MountedFilesystem {
    /// The file system that `path` lies in.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let inside = File::open(path).map_err(|error| of_mounted(error).about(path))?;
        let mounted = Self { inside };
        mounted.subvolume_id().map_err(|error| error.about(path))?;
        Ok(mounted)
    }

    /// The file system that `inside` lies in.
    pub(super) fn of(inside: File) -> Self {
        Self { inside }
    }

    /// A file or directory in it.
    pub(super) fn inside(&self) -> &File {
        &self.inside
    }

    /// Id of the subvolume that the path lies in.
    pub fn subvolume_id(&self) -> Result<u64> {
        larder_ioctl::subvolume_id(&self.inside).map_err(of_mounted)
    }

    fn all_items(&self, tree: u64, first: Key, last: Key) -> Result<Vec<larder_ioctl::Item>> {
        larder_ioctl::items(&self.inside, tree, first..=last).map_err(of_mounted)
    }

    fn item(&self, tree: u64, key: Key) -> Result<Option<Vec<u8>>> {
        let items = match self.all_items(tree, key, key) {
            // There is no such tree.
            Err(error) if error.kind() == crate::ErrorKind::NotFound => Vec::new(),
            items => items?,
        };
        Ok(items.into_iter().next().map(|item| item.data))
    }

    /// The chunks, if the caller may see them.
    fn chunks(&self) -> Result<Option<Vec<Chunk>>> {
        let info = larder_ioctl::filesystem_info(&self.inside).map_err(of_mounted)?;
        let key = |offset| Key::new(objectid::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, offset);
        let items = match self.all_items(objectid::CHUNK_TREE, key(0), key(u64::MAX)) {
            Err(error) if error.kind() == crate::ErrorKind::NotPermitted => return Ok(None),
            items => items?,
        };
        let chunk = |item: larder_ioctl::Item| {
            let parsed = ChunkItem::parse(&item.data)
                .map_err(|problem| bad(objectid::CHUNK_TREE, item.key, problem))?;
            Chunk::from_item(Logical(item.key.offset), &parsed, info.sector_bytes).map_err(
                |error| {
                    let problem = FormatError::invalid("chunk", error.to_string());
                    bad(objectid::CHUNK_TREE, item.key, problem)
                },
            )
        };
        items.into_iter().map(chunk).collect::<Result<_>>().map(Some)
    }

    /// What is used of a chunk, from the tree that says so.
    fn block_group_item(&self, chunk: &Chunk) -> Result<Option<BlockGroupItem>> {
        let key = Key::new(chunk.logical().0, ItemType::BLOCK_GROUP_ITEM, chunk.len_bytes());
        for tree in [objectid::BLOCK_GROUP_TREE, objectid::EXTENT_TREE] {
            if let Some(data) = self.item(tree, key)? {
                let item = read_exact_item::<BlockGroupItem>(&data);
                return item.copied().map(Some).map_err(|problem| bad(tree, key, problem));
            }
        }
        Ok(None)
    }
}

impl Overview for MountedFilesystem {
    fn is_mounted(&self) -> bool {
        true
    }

    fn label(&self) -> Result<OsString> {
        Ok(OsString::from_vec(larder_ioctl::label(&self.inside).map_err(of_mounted)?))
    }

    fn uuid(&self) -> Result<Uuid> {
        Ok(larder_ioctl::filesystem_info(&self.inside).map_err(of_mounted)?.uuid)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let devices = larder_ioctl::devices(&self.inside).map_err(of_mounted)?;
        let uuid = self.uuid()?;
        // The kernel has no metrics, and tells nobody what a device missed.
        let metrics = larder_ioctl::metrics(&self.inside).unwrap_or_default();
        let info = |device: larder_ioctl::DeviceInfo| {
            let is_missing = [&b""[..], MISSING].contains(&&*device.path);
            let name = String::from_utf8_lossy(&device.path).into_owned();
            let name = (!is_missing).then_some(name);
            let (id, allocated_bytes) = (device.id, device.allocated_bytes);
            let mut info =
                DeviceInfo::new(id, device.uuid, name, device.total_bytes, allocated_bytes);
            let outdated = format!("larder_device_outdated{{device=\"{id}\"}} 1");
            info.is_stale = metrics.lines().any(|line| line == outdated);
            info.is_seed = !device.filesystem.is_nil() && device.filesystem != uuid;
            info
        };
        Ok(devices.into_iter().map(info).collect())
    }

    /// Only root and the user who mounted it may know on which devices block groups lie.
    fn space(&self) -> Result<Vec<Space>> {
        let mut spaces = Spaces::default();
        for space in larder_ioctl::spaces(&self.inside).map_err(of_mounted)? {
            if space.flags & GLOBAL_RESERVE == 0 {
                let flags = BlockGroupFlags::from_bits_retain(space.flags);
                spaces.add(flags, space.total_bytes, space.used_bytes);
            }
        }
        for chunk in self.chunks()?.iter().flatten() {
            spaces.add_chunk(chunk);
        }
        Ok(spaces.in_order())
    }

    /// Commits, so that it is known what is used.
    fn plan_balance(&self, wanted: &BalanceItem) -> Result<Vec<ChosenGroup>> {
        larder_ioctl::sync(&self.inside).map_err(of_mounted)?;
        let forbidden = || of_mounted(io::ErrorKind::PermissionDenied.into());
        let mut groups = Vec::new();
        for chunk in self.chunks()?.ok_or_else(forbidden)? {
            // One without an item was removed meanwhile.
            if let Some(item) = self.block_group_item(&chunk)? {
                groups.push((Arc::new(chunk), item.used.get()));
            }
        }
        let devices = self.devices()?;
        let usable = devices.iter().filter(|device| device.name.is_some() && !device.is_seed);
        Ok(choose_for_balance(wanted, &groups, usable.count())?)
    }

    fn used_bytes(&self) -> Result<u64> {
        let spaces = larder_ioctl::spaces(&self.inside).map_err(of_mounted)?;
        let groups = spaces.iter().filter(|space| space.flags & GLOBAL_RESERVE == 0);
        Ok(groups.map(|space| space.used_bytes).fold(0, u64::saturating_add))
    }

    fn global_reserve(&self) -> Result<Option<GlobalReserve>> {
        let spaces = larder_ioctl::spaces(&self.inside).map_err(of_mounted)?;
        let reserve = spaces.iter().find(|space| space.flags & GLOBAL_RESERVE != 0);
        Ok(reserve.map(|space| GlobalReserve {
            total_bytes: space.total_bytes,
            used_bytes: space.used_bytes,
        }))
    }

    /// As statfs(2) has it.
    fn capacity(&self) -> Result<Capacity> {
        let found = rustix::fs::fstatvfs(&self.inside).map_err(|error| of_mounted(error.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Capacity {
            total_bytes: bytes(found.f_blocks),
            free_bytes: bytes(found.f_bfree),
            available_bytes: bytes(found.f_bavail),
        })
    }

    fn subvolumes(&self) -> Result<Box<dyn Iterator<Item = Result<SubvolumeInfo>> + '_>> {
        let (first, last) = SubvolumeItems::RANGE;
        let mut together = SubvolumeItems::default();
        let mut infos = Vec::new();
        for item in self.all_items(objectid::ROOT_TREE, first, last)? {
            infos.extend(together.add(item.key, &item.data, |_| None).transpose());
        }
        infos.extend(together.end().map(Ok));
        // The kernel removes the name of a subvolume at once, and marks its root with a commit.
        let is_nameless =
            |info: &SubvolumeInfo| info.name.is_none() && info.id != objectid::FS_TREE;
        for info in infos.iter_mut().flatten() {
            info.is_being_deleted |= is_nameless(info);
        }
        Ok(Box::new(infos.into_iter()))
    }

    fn subvolume_path(&self, id: u64) -> Result<PathBuf> {
        let path = larder_ioctl::subvolume_path(&self.inside, id).map_err(of_mounted)?;
        path.map(path_of).ok_or(Error::NoSuchSubvolume(id))
    }

    fn default_subvolume_id(&self) -> Result<u64> {
        let hash = name_hash::dir_name(b"default");
        let key = Key::new(objectid::ROOT_TREE_DIR, ItemType::DIR_ITEM, hash);
        let Some(item) = self.item(objectid::ROOT_TREE, key)? else { return Ok(objectid::FS_TREE) };
        larder_filesystem::default_subvolume_in(&item)
            .map_err(|problem| bad(objectid::ROOT_TREE, key, problem))
    }

    fn quota_group(&self, id: u64) -> Result<Option<QuotaGroup>> {
        let key = |item_type| Key::new(0, item_type, id);
        let tree = objectid::QUOTA_TREE;
        let (info_key, limit_key) = (key(ItemType::QGROUP_INFO), key(ItemType::QGROUP_LIMIT));
        let Some(info) = self.item(tree, info_key)? else { return Ok(None) };
        let limit = self.item(tree, limit_key)?;
        QuotaGroup::of_items(&info, limit.as_deref())
            .map(Some)
            .map_err(|problem| bad(tree, info_key, problem))
    }

    fn places_of(&self, logical: u64, of_whole_extent: bool) -> Result<Vec<FilePlace>> {
        let places = larder_ioctl::places_of(&self.inside, logical, of_whole_extent);
        let place = |place: larder_ioctl::FilePlace| {
            let larder_ioctl::FilePlace { subvolume, inode, offset } = place;
            FilePlace { subvolume, inode, offset }
        };
        let mut places: Vec<_> = places.map_err(of_mounted)?.into_iter().map(place).collect();
        places.sort_unstable();
        Ok(places)
    }

    fn items(&self, tree: u64, range: RangeInclusive<Key>, since: u64) -> Result<KeyedItems<'_>> {
        let items = larder_ioctl::items_since(self.inside.as_fd(), tree, range, since);
        let named = |item: larder_ioctl::Item| (item.key, item.data);
        Ok(Box::new(items.map(move |item| item.map(named).map_err(of_mounted))))
    }

    fn inode_paths(&self, subvolume: u64, inode: u64) -> Result<Vec<PathBuf>> {
        if subvolume == self.subvolume_id()? {
            let paths = larder_ioctl::inode_paths(&self.inside, inode);
            return Ok(paths.map_err(of_mounted)?.into_iter().map(path_of).collect());
        }
        // The ioctls give one path for each other subvolume.
        Ok(vec![self.inode_path(subvolume, inode)?])
    }

    fn inode_path(&self, subvolume: u64, inode: u64) -> Result<PathBuf> {
        let directory = |inode| larder_ioctl::directory_path(&self.inside, subvolume, inode);
        let key = |parent| Key::new(inode, ItemType::INODE_REF, parent);
        let refs = self.items(subvolume, key(0)..=key(u64::MAX), 0)?.next();
        let Some((key, refs)) = refs.transpose()?.filter(|(key, _)| key.objectid == inode) else {
            let mut path = directory(inode).map_err(of_mounted)?;
            path.pop();
            return Ok(path_of(path));
        };
        let first = InodeRefs::new(&refs).next().ok_or(Error::NotFound)?;
        let name = first.map_err(|problem| bad(subvolume, key, problem))?.name;
        let directory = directory(key.offset).map_err(of_mounted)?;
        Ok(path_of([&*directory, name].concat()))
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

fn bad(tree: u64, key: Key, problem: FormatError) -> Error {
    Error::Item { tree, key, problem }
}

/// An error of a mounted file system.
pub(super) fn of_mounted(error: io::Error) -> Error {
    let error = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOTTY | rustix::io::Errno::NOSYS) => io::Error::new(
            io::ErrorKind::Unsupported,
            "neither the kernel's btrfs nor a mount of larder",
        ),
        _ => error,
    };
    Error::Mounted(error)
}
