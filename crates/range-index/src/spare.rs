//! Spare memory: the memory of a freed block becomes the next block of the thread that freed it.
//!
//! Every edit makes a block and retires one. The thread that moves the epoch on frees the blocks
//! that all threads have retired. A usual allocator gives such memory back to the thread that it
//! came from, and takes that thread's locks for it: writers in different places would meet after
//! all.
//!
//! Invariants
//! - A thread keeps only memory that nothing refers to, of exactly the layout that it is kept
//!   under.
//! - A thread keeps at most [`LIMIT_BYTES`], and nothing when it ends.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;

/// How much a thread keeps: a few times what is retired and freed at once.
const LIMIT_BYTES: usize = 2 << 20;
/// All layouts that are kept have this alignment, and sizes that are multiples of it.
const ALIGN: usize = 8;
/// Larger layouts are not kept.
const LARGEST_BYTES: usize = 4096;

/// By size, in units of [`ALIGN`].
#[derive(Default)]
struct Spare {
    of_size: Vec<Vec<NonNull<u8>>>,
    bytes: usize,
}

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { of_size: Vec::new(), bytes: 0 }) };
}

impl Spare {
    fn take(&mut self, size: usize) -> Option<NonNull<u8>> {
        let memory = self.of_size.get_mut(size / ALIGN)?.pop()?;
        self.bytes -= size;
        Some(memory)
    }

    fn keep(&mut self, memory: NonNull<u8>, size: usize) {
        if self.bytes + size > LIMIT_BYTES {
            // Room for the sizes that are in use now.
            self.clear();
        }
        if self.of_size.is_empty() {
            self.of_size.resize_with(LARGEST_BYTES / ALIGN + 1, Vec::new);
        }
        self.of_size[size / ALIGN].push(memory);
        self.bytes += size;
    }

    fn clear(&mut self) {
        for (units, kept) in self.of_size.iter_mut().enumerate() {
            let layout = layout_of(units * ALIGN);
            for memory in kept.drain(..) {
                // SAFETY: kept under the layout it was allocated with, and taken out here.
                unsafe { dealloc(memory.as_ptr(), layout) }
            }
        }
        self.bytes = 0;
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.clear();
    }
}

fn layout_of(size: usize) -> Layout {
    Layout::from_size_align(size, ALIGN).expect("a small size")
}

/// Nothing is kept where an interpreter looks for uses of memory that was freed.
fn is_kept(layout: Layout) -> bool {
    !cfg!(miri)
        && layout.align() == ALIGN
        && layout.size() <= LARGEST_BYTES
        && layout.size().is_multiple_of(ALIGN)
}

/// Memory of this layout, which is not empty.
pub(crate) fn allocate(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0, "a block has a header");
    let spare = is_kept(layout)
        .then(|| SPARE.try_with(|spare| spare.borrow_mut().take(layout.size())).ok().flatten());
    spare.flatten().unwrap_or_else(|| {
        // SAFETY: just checked that the layout is not empty.
        let memory = unsafe { alloc(layout) };
        NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
    })
}

/// # Safety
/// `memory` came from [`allocate`] with this layout, is freed once, and no thread uses it any
/// more.
pub(crate) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    let keep = |spare: &RefCell<Spare>| spare.borrow_mut().keep(memory, layout.size());
    if !is_kept(layout) || SPARE.try_with(keep).is_err() {
        // SAFETY: the caller's promise.
        unsafe { dealloc(memory.as_ptr(), layout) }
    }
}
