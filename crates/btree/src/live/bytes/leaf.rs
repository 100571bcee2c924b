//! Changing the bytes of a leaf.
//!
//! Item headers grow from the front and item data from the back. The data of neighbouring items is
//! adjacent, so that every change is at most one move of headers and one of data. Callers make
//! sure of room first. The bytes between headers and data mean nothing.

use std::ops::Range;

use larder_format::node::{HEADER_SIZE, Header, ITEM_HEADER_SIZE, ItemHeader, leaf_data_size};
use larder_format::{DiskKey, Key, Node};
use zerocopy::FromBytes;

/// A leaf whose bytes may change.
pub(crate) struct LeafMut<'a> {
    bytes: &'a mut [u8],
}

/// The part of an item that stays when the item gets shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Its beginning.
    Front,
    /// Its end.
    Back,
}

/// The bytes that an item takes in a leaf: header and data.
pub(crate) const fn weight(data_len: usize) -> usize {
    ITEM_HEADER_SIZE + data_len
}

/// Bytes of headers and data in a leaf.
pub(crate) fn used_bytes(leaf: Node<'_>) -> usize {
    leaf_data_size(leaf.bytes().len()) - leaf.leaf_free_space()
}

/// The bytes that each item of a leaf takes.
pub(crate) fn weights(leaf: Node<'_>) -> impl Iterator<Item = usize> + use<'_> {
    leaf.items().iter().map(|item| weight(item.size.get() as usize))
}

impl<'a> LeafMut<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes }
    }

    fn header(&mut self) -> &mut Header {
        Header::mut_from_prefix(self.bytes).expect("a block is longer than its header").0
    }

    fn count(&mut self) -> usize {
        self.header().nritems.get() as usize
    }

    /// The first `count` item headers.
    fn items(&mut self, count: usize) -> &mut [ItemHeader] {
        <[ItemHeader]>::mut_from_prefix_with_elems(&mut self.bytes[HEADER_SIZE..], count)
            .expect("room was made sure of")
            .0
    }

    /// Where the data of the items before `slot` begins, from the end of the header.
    fn data_end(&mut self, slot: usize) -> usize {
        match slot.checked_sub(1) {
            Some(before) => self.items(slot)[before].offset.get() as usize,
            None => leaf_data_size(self.bytes.len()),
        }
    }

    /// Moves data. Both places count from the end of the header.
    fn move_data(&mut self, from: Range<usize>, to: usize) {
        self.bytes.copy_within(HEADER_SIZE + from.start..HEADER_SIZE + from.end, HEADER_SIZE + to);
    }

    /// Makes room for items of these keys and lengths before `slot`. The caller then sets their
    /// data.
    pub(crate) fn insert(
        &mut self,
        slot: usize,
        items: impl Iterator<Item = (Key, usize)> + Clone,
    ) {
        let count = self.count();
        let (new, len) = items.clone().fold((0, 0), |(n, sum), (_, len)| (n + 1, sum + len));
        let (start, mut end) = (self.data_end(count), self.data_end(slot));
        self.move_data(start..end, start - len);
        let headers = self.items(count + new);
        headers.copy_within(slot..count, slot + new);
        for header in &mut headers[slot + new..] {
            header.offset -= len as u32;
        }
        for (header, (key, len)) in headers[slot..].iter_mut().zip(items) {
            end -= len;
            *header = ItemHeader {
                key: key.into(),
                offset: (end as u32).into(),
                size: (len as u32).into(),
            };
        }
        self.header().nritems += new as u32;
    }

    /// The data of the item at `slot`.
    pub(crate) fn data(&mut self, slot: usize) -> &mut [u8] {
        let end = HEADER_SIZE + self.data_end(slot);
        let start = HEADER_SIZE + self.data_end(slot + 1);
        &mut self.bytes[start..end]
    }

    /// Removes these items.
    pub(crate) fn remove(&mut self, slots: Range<usize>) {
        let count = self.count();
        let (start, hole) =
            (self.data_end(count), self.data_end(slots.end)..self.data_end(slots.start));
        let len = hole.len();
        self.move_data(start..hole.start, start + len);
        let headers = self.items(count);
        for header in &mut headers[slots.end..] {
            header.offset += len as u32;
        }
        headers.copy_within(slots.end.., slots.start);
        self.header().nritems -= slots.len() as u32;
    }

    /// Puts new data in place of the data of the items at these slots, which ascend. The leaf has
    /// room for the growth of each item even before the items after it shrink.
    pub(crate) fn replace(&mut self, items: &[(usize, &[u8])]) {
        let mut items = items;
        while let Some(((slot, data), rest)) = items.split_first()
            && self.data(*slot).len() == data.len()
        {
            self.data(*slot).copy_from_slice(data);
            items = rest;
        }
        self.lay_out(items);
    }

    /// As [`replace`](Self::replace), where lengths change. All data from the first of the items
    /// on moves aside, to right after the headers. Then it moves back piece by piece, together
    /// with the new data. Nothing that moves back reaches the data that is still aside, since each
    /// item has its room.
    fn lay_out(&mut self, items: &[(usize, &[u8])]) {
        let Some((first, _)) = items.first() else { return };
        let count = self.count();
        let (start, mut end) = (self.data_end(count), self.data_end(*first));
        let free = start - count * ITEM_HEADER_SIZE;
        self.move_data(start..end, start - free);
        let nexts = items[1..].iter().map(|(slot, _)| *slot).chain([count]);
        for ((slot, data), next) in items.iter().zip(nexts) {
            let old = self.data_end(slot + 1);
            let behind = self.data_end(next)..old;
            end -= data.len();
            self.bytes[HEADER_SIZE + end..][..data.len()].copy_from_slice(data);
            let headers = &mut self.items(count)[*slot..next];
            headers[0].size = (data.len() as u32).into();
            for header in headers {
                header.offset = ((header.offset.get() as usize + end - old) as u32).into();
            }
            let to = end - behind.len();
            self.move_data(behind.start - free..behind.end - free, to);
            end = to;
        }
    }

    /// Appends `len` zeros to the item at `slot`.
    pub(crate) fn extend(&mut self, slot: usize, len: usize) {
        let count = self.count();
        let (start, end) = (self.data_end(count), self.data_end(slot));
        self.move_data(start..end, start - len);
        let headers = self.items(count);
        for header in &mut headers[slot..] {
            header.offset -= len as u32;
        }
        headers[slot].size += len as u32;
        self.bytes[HEADER_SIZE + end - len..HEADER_SIZE + end].fill(0);
    }

    /// Makes the item at `slot` shorter, to `len` bytes.
    pub(crate) fn truncate(&mut self, slot: usize, len: usize, keep: Keep) {
        let count = self.count();
        let item = self.data_end(slot + 1)..self.data_end(slot);
        let cut = item.len() - len;
        let start = self.data_end(count);
        let kept_end = match keep {
            Keep::Front => item.start + len,
            Keep::Back => item.start,
        };
        self.move_data(start..kept_end, start + cut);
        let headers = self.items(count);
        for header in &mut headers[slot..] {
            header.offset += cut as u32;
        }
        headers[slot].size -= cut as u32;
    }

    /// Gives the item at `slot` another key.
    pub(crate) fn set_key(&mut self, slot: usize, key: Key) {
        self.items(slot + 1)[slot].key = DiskKey::from(key);
    }

    /// Splits the data of the item at `slot`: the bytes after the first `len` become an item of
    /// their own after it. Takes one more item header and no data.
    pub(crate) fn split_item(&mut self, slot: usize, key: Key, len: usize) {
        // Data lies in reverse order of items: the two parts change places.
        let data = self.data(slot);
        let whole = data.len();
        data.rotate_left(len);
        let count = self.count();
        let headers = self.items(count + 1);
        headers.copy_within(slot..count, slot + 1);
        let rest = (whole - len) as u32;
        headers[slot].offset += rest;
        headers[slot].size = (len as u32).into();
        headers[slot + 1].key = key.into();
        headers[slot + 1].size = rest.into();
        self.header().nritems += 1;
    }
}

/// Copies the items `slots` of `from` to `to`, before its item `at`.
pub(crate) fn copy_items(from: Node<'_>, slots: Range<usize>, to: &mut LeafMut<'_>, at: usize) {
    let Some(last) = slots.end.checked_sub(1).filter(|_| !slots.is_empty()) else { return };
    let items = &from.items()[slots.clone()];
    to.insert(at, items.iter().map(|item| (item.key.get(), item.size.get() as usize)));
    let start = from.items()[last].offset.get() as usize;
    let first = from.items()[slots.start];
    let end = (first.offset.get() + first.size.get()) as usize;
    let target = HEADER_SIZE + to.data_end(at + slots.len());
    to.bytes[target..target + (end - start)]
        .copy_from_slice(&from.bytes()[HEADER_SIZE + start..HEADER_SIZE + end]);
}

/// Zeros the bytes between headers and data, so that nothing removed reaches a device.
pub(crate) fn clear_free_space(bytes: &mut [u8]) {
    let mut leaf = LeafMut::new(bytes);
    let count = leaf.count();
    let end = leaf.data_end(count);
    bytes[HEADER_SIZE + count * ITEM_HEADER_SIZE..HEADER_SIZE + end].fill(0);
}
