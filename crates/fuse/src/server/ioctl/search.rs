//! Items of trees, for who may see everything.

use larder::{ItemType, Key, TreeItem};
use larder_ioctl::abi::{SearchArgs, SearchArgsV2, SearchHeader, SearchKey};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::{Ioctl, Outcome, Server, failed};
use crate::server::Call;

/// What was found, as far as there is room for it.
struct Found {
    bytes: Vec<u8>,
    room: usize,
    count: u32,
}

impl Server {
    /// A search whose results have a fixed room. Of an item that does not fit it there is only the header.
    pub(super) fn search_tree(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let mut key: SearchKey = io.input()?;
        let mut found = Found::new(size_of::<SearchArgs>() - size_of::<SearchKey>());
        self.search(call, &key, |item| {
            let fits = found.add(item);
            if !fits && found.count == 0 {
                found.add_header(item);
            }
            fits
        })?;
        key.nr_items = found.count;
        io.output(&key)?;
        io.output(&*found.bytes)
    }

    /// A search with as much room as the caller has.
    pub(super) fn search_tree_v2(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let (mut args, more) = SearchArgsV2::read_from_prefix(io.data).map_err(|_| Errno::INVAL)?;
        let room = usize::try_from(args.buf_size).unwrap_or(usize::MAX).min(more.len());
        if room < size_of::<SearchHeader>() {
            return Err(Errno::OVERFLOW);
        }
        let mut found = Found::new(room);
        let mut too_long = None;
        self.search(call, &args.key, |item| {
            let fits = found.add(item);
            if !fits && found.count == 0 {
                too_long = Some(size_of::<SearchHeader>() + item.data().len());
            }
            fits
        })?;
        args.key.nr_items = found.count;
        if let Some(needed) = too_long {
            args.buf_size = needed as u64;
            io.error = Some(Errno::OVERFLOW);
        }
        io.output(&args)?;
        io.output(&*found.bytes)
    }

    /// Gives `take` each item that is wanted, until it has taken as many as are, or takes no more.
    fn search(
        &self,
        call: &Call<'_>,
        wanted: &SearchKey,
        mut take: impl FnMut(&TreeItem) -> bool,
    ) -> Outcome {
        self.check_privileged(call)?;
        let item_type = |number: u32| u8::try_from(number).map_or(ItemType(u8::MAX), ItemType);
        let first = Key::new(wanted.min_objectid, item_type(wanted.min_type), wanted.min_offset);
        let last = Key::new(wanted.max_objectid, item_type(wanted.max_type), wanted.max_offset);
        let tree = match wanted.tree_id {
            0 => self.node(call)?.inode.subvolume_id(),
            id => id,
        };
        let mut left = wanted.nr_items;
        for item in self.filesystem.tree_items(tree, first..=last).map_err(failed)? {
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
}

impl Found {
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
