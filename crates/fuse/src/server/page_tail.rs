//! Bytes that programs store past the end of a mapped file.
//!
//! A mapping ends with the page that the file ends in, and a program may store to all of that page.
//! The bytes past the end are no content: Linux's own file systems set them to zeros when the file
//! grows. The kernel does not do that for a FUSE server: it writes the page back, with these bytes,
//! once the file has grown.
//!
//! # Invariants
//! - A file grows by zeros until a program writes there.
//! - ftruncate(2): after the reply and before it returns to the program, the kernel writes the page
//!   back if a program stored to it, and drops it. It reads the page before a program can store to
//!   it again. So the first data of the page that it writes is from before the file grew, unless it
//!   has read the page since. The server leaves out the part of that data past the old end.
//! - fallocate(2) and copy_file_range(2): the server makes the kernel write the page back before
//!   the file grows. The kernel then leaves out the bytes past the end.
//! - While a program writes past the end, the kernel holds pages locked, and the server cannot tell
//!   it anything. With `writeback_cache`, writes can look like the old page. In these two cases the
//!   bytes past the end become content.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use rustix::param::page_size;

/// Where a file ended before ftruncate(2) made it longer, as long as the kernel may have the page
/// from before. 0 if it has not.
#[derive(Debug, Default)]
pub(super) struct PageTail(AtomicU64);

impl PageTail {
    /// ftruncate(2) has changed the size from `old_end` to `new_end`.
    pub(super) fn resized(&self, old_end: u64, new_end: u64) {
        let has_tail = new_end > old_end && !old_end.is_multiple_of(page_bytes());
        self.0.store(if has_tail { old_end } else { 0 }, SeqCst);
    }

    /// The kernel reads or writes `len_bytes` from `offset` on. Returns the part of the page that
    /// may be from before the file grew, if that was in doubt until now.
    pub(super) fn take(&self, offset: u64, len_bytes: usize) -> Option<Range<u64>> {
        let old_end = self.0.load(SeqCst);
        if old_end == 0 {
            return None;
        }
        let page_end = old_end.next_multiple_of(page_bytes());
        let has_page =
            offset < page_end && offset.saturating_add(len_bytes as u64) > page_end - page_bytes();
        let is_taken = has_page && self.0.compare_exchange(old_end, 0, SeqCst, SeqCst).is_ok();
        is_taken.then_some(old_end..page_end)
    }
}

/// The parts of `data` outside of `range`, each with its offset. `data` is to be written at
/// `offset`.
pub(super) fn parts_outside(
    range: Option<Range<u64>>,
    data: &[u8],
    offset: u64,
) -> impl Iterator<Item = (&[u8], u64)> {
    let place = |at: u64| at.saturating_sub(offset).min(data.len() as u64) as usize;
    let cut = range.map_or(data.len()..data.len(), |range| place(range.start)..place(range.end));
    let parts = [(&data[..cut.start], offset), (&data[cut.end..], offset + cut.end as u64)];
    parts.into_iter().filter(|(data, _)| !data.is_empty())
}

pub(super) fn page_bytes() -> u64 {
    page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_data_of_a_page_after_the_file_grew_is_in_doubt() {
        let page = page_bytes();
        let tail = PageTail::default();
        tail.resized(page + 10, 5 * page);
        assert_eq!(tail.take(0, page as usize), None, "another page");
        assert_eq!(tail.take(2 * page, 1), None, "another page");
        assert_eq!(tail.take(page, page as usize), Some(page + 10..2 * page));
        assert_eq!(tail.take(page, page as usize), None, "it was brought");
        for (old_end, new_end) in [(page, 5 * page), (page + 10, page), (page + 10, page + 10)] {
            tail.resized(page + 10, 5 * page);
            tail.resized(old_end, new_end);
            assert_eq!(tail.take(0, usize::MAX), None, "{old_end} {new_end}");
        }
    }

    #[test]
    fn left_out_bytes_are_in_no_part() {
        let data = b"0123456789";
        let parts = |range| parts_outside(range, data, 100).collect::<Vec<_>>();
        assert_eq!(parts(None), [(&data[..], 100)]);
        assert_eq!(parts(Some(103..105)), [(&data[..3], 100), (&data[5..], 105)]);
        assert_eq!(parts(Some(105..500)), [(&data[..5], 100)]);
        assert_eq!(parts(Some(50..104)), [(&data[4..], 104)]);
        assert_eq!(parts(Some(50..500)), []);
        assert_eq!(parts(Some(200..500)), [(&data[..], 100)]);
    }
}
