//! Cutting block groups after their last content.
//!
//! # Invariants
//! - From [`Group::begin_cut`] on no thread gets anything after the new end. It was free in the
//!   last durable state too, so that its place on the devices may get other content at once.

use std::sync::atomic::Ordering::Relaxed;

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_volume::Chunk;

use super::{Group, Space};

impl Space {
    /// The chunk of a group has its new end from now on.
    pub(crate) fn cut(&self, group: &Group, to: Chunk) {
        let account = self.account_of(group.flags());
        let cut = group.cut(to.end().0);
        account.total.sub(cut.total_bytes);
        account.unusable.sub(cut.unusable_bytes);
        self.devices.lock().shorten(&to);
        group.set_chunk(to.into());
        self.changes.lock().dirty.insert(group.start().0);
        self.update_reserve();
    }
}

impl Group {
    /// Keeps what is free at its end from being allocated, except `spare_bytes` of it.
    /// Returns the chunk as it will be; `None` if there is nothing to cut.
    pub(crate) fn begin_cut(&self, spare_bytes: u64) -> Option<Chunk> {
        let to = self.cut_chunk(spare_bytes)?;
        self.claim_end(to.end().0).then_some(to)
    }

    /// Its chunk, cut after the last content with so many bytes to spare. `None` if there
    /// is nothing to cut.
    pub(crate) fn cut_chunk(&self, spare_bytes: u64) -> Option<Chunk> {
        let (chunk, range) = (self.chunk(), self.range());
        let data_stripes = chunk.data_stripes() as u64;
        let kept_bytes = self.end_of_content() - range.start + spare_bytes;
        let stripe_bytes = kept_bytes.div_ceil(data_stripes).next_multiple_of(STRIPE_LEN_BYTES);
        let stripe_bytes = stripe_bytes.max(STRIPE_LEN_BYTES);
        if chunk.has_parity() || stripe_bytes >= chunk.bytes_per_stripe() {
            return None;
        }
        let len_bytes = stripe_bytes * data_stripes;
        Chunk::new(chunk.logical(), len_bytes, chunk.flags(), chunk.stripes()).ok()
    }

    /// What is free before the end of the last content.
    pub(crate) fn scattered_bytes(&self) -> u64 {
        let window = self.range().start..self.end_of_content();
        let taken = self.taken_in(window.clone());
        window.end - window.start - taken.iter().map(|range| range.end - range.start).sum::<u64>()
    }

    /// Where the last content of any state ends.
    fn end_of_content(&self) -> u64 {
        let superblocks = self.chunk().superblock_ranges();
        let is_superblock = |at: u64| {
            let mut all = superblocks.iter();
            all.any(|(start, len_bytes)| (start.0..start.0 + len_bytes).contains(&at))
        };
        let range = self.range();
        let mut end = range.start;
        for taken in self.taken_in(range) {
            let mut last = taken.end;
            while last > taken.start && is_superblock(last - 1) {
                last -= STRIPE_LEN_BYTES.min(last - taken.start);
            }
            if last > taken.start {
                end = end.max(last);
            }
        }
        end
    }

    /// Takes all that is free from an address on. Returns whether nothing else is there but the
    /// places of superblock copies.
    fn claim_end(&self, start: u64) -> bool {
        let end = self.range().end;
        let taken = self.taken_in(start..end);
        let from = std::iter::once(start).chain(taken.iter().map(|range| range.end));
        let to = taken.iter().map(|range| range.start).chain([end]);
        let mut claimed = Vec::new();
        for free in from.zip(to).filter(|(from, to)| from < to).map(|(from, to)| from..to) {
            if !self.claim_exactly(&free) {
                for range in claimed {
                    self.give_back(range);
                }
                return false;
            }
            claimed.push(free);
        }
        for range in claimed {
            self.reserved.fetch_sub(range.end - range.start, Relaxed);
        }
        true
    }
}
