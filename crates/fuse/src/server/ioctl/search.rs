//! Items of trees, for callers that may see everything.

use larder::{ItemType, Key, TreeItem};
use larder_ioctl::abi::{SearchArgs, SearchArgsV2, SearchHeader, SearchKey};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use zerocopy::{FromBytes, IntoBytes};

use super::call::Ioctl;
use crate::server::call::{Outcome, failed};

/// Items as they are returned, as far as there is room.
struct Results {
    bytes: Vec<u8>,
    room: usize,
    count: u32,
}

/// A search with fixed room for its results. An item that does not fit at all is returned as its
/// header.
pub(super) fn search_tree(ioctl: &mut Ioctl<'_>) -> Outcome {
    let mut key: SearchKey = ioctl.input()?;
    let mut found = Results::new(size_of::<SearchArgs>() - size_of::<SearchKey>());
    search(ioctl, &key, |item| {
        let fits = found.add(item);
        if !fits && found.count == 0 {
            found.add_header(item);
        }
        fits
    })?;
    key.nr_items = found.count;
    ioctl.output(&key)?;
    ioctl.output(&*found.bytes)
}

/// A search with as much room as the caller has.
pub(super) fn search_tree_v2(ioctl: &mut Ioctl<'_>) -> Outcome {
    let (mut args, more) = SearchArgsV2::read_from_prefix(ioctl.data).map_err(|_| Errno::INVAL)?;
    let room = usize::try_from(args.buf_size).unwrap_or(usize::MAX).min(more.len());
    if room < size_of::<SearchHeader>() {
        return Err(Errno::OVERFLOW);
    }
    let mut found = Results::new(room);
    let mut too_long = None;
    search(ioctl, &args.key, |item| {
        let fits = found.add(item);
        if !fits && found.count == 0 {
            too_long = Some(size_of::<SearchHeader>() + item.data().len());
        }
        fits
    })?;
    args.key.nr_items = found.count;
    if let Some(needed) = too_long {
        args.buf_size = needed as u64;
        ioctl.error = Some(Errno::OVERFLOW);
    }
    ioctl.output(&args)?;
    ioctl.output(&*found.bytes)
}

/// Gives `take` each item that matches `wanted`, until that many are taken or it refuses one.
fn search(
    ioctl: &Ioctl<'_>,
    wanted: &SearchKey,
    mut take: impl FnMut(&TreeItem) -> bool,
) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    let item_type = |number: u32| u8::try_from(number).map_or(ItemType(u8::MAX), ItemType);
    let first = Key::new(wanted.min_objectid, item_type(wanted.min_type), wanted.min_offset);
    let last = Key::new(wanted.max_objectid, item_type(wanted.max_type), wanted.max_offset);
    let tree = match wanted.tree_id {
        0 => ioctl.node()?.inode.subvolume_id(),
        id => id,
    };
    let mut left = wanted.nr_items;
    for item in ioctl.server.filesystem.tree_items(tree, first..=last).map_err(failed)? {
        let item = item.map_err(failed)?;
        if !(wanted.min_transid..=wanted.max_transid).contains(&item.generation()) {
            continue;
        }
        left = left.saturating_sub(1);
        if !take(&item) || left == 0 {
            break;
        }
    }
    Ok(())
}

impl Results {
    fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), room, count: 0 }
    }

    /// Adds an item if there is room for it.
    fn add(&mut self, item: &TreeItem) -> bool {
        let len = size_of::<SearchHeader>() + item.data().len();
        if self.room - self.bytes.len() < len {
            return false;
        }
        self.put(item, item.data());
        true
    }

    /// Adds an item as if it were empty.
    fn add_header(&mut self, item: &TreeItem) {
        self.put(item, &[]);
    }

    fn put(&mut self, item: &TreeItem, data: &[u8]) {
        let Key { objectid, item_type, offset } = item.key();
        let header = SearchHeader {
            transid: item.generation(),
            objectid,
            offset,
            item_type: item_type.0.into(),
            len: data.len() as u32,
        };
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(data);
        self.count += 1;
    }
}
