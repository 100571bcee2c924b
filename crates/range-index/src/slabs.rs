//! Slabs: the memory of an index's towers, close together.
//!
//! A search enters about one tower at each level. Among the blocks, which are fifteen times as
//! large, each tower of a large index would have a page of its own, and share its cache lines with
//! what no search looks at.
//!
//! Invariants
//! - The memory of a freed tower becomes the next tower of the same height, and nothing else for
//!   as long as the slabs exist. They exist as long as the index and every tower that is not freed
//!   yet.
//! - Only a thread that holds `fresh` takes from a list of freed towers, so the first of a list
//!   cannot leave it and come back while another thread takes it. Giving back takes no lock, since
//!   the thread may be a reader that moves the epoch on.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
// No scheduler may stop at these: towers are also freed when none runs any more.
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::Mutex;

/// The highest tower. A level has less than half as many links as the one below, so it serves more
/// nodes than memory holds.
pub(crate) const MAX_HEIGHT: usize = 26;

/// The smallest slab: the head of the list and a few nodes.
const LEAST_BYTES: usize = 512;
/// A new slab is this part of all before it, so that hardly more is unused.
const PART: usize = 16;

/// The first word of memory that a tower has left.
struct Freed {
    next: *mut Freed,
}

/// Memory that has not been a tower yet.
struct Fresh {
    /// The rest of the last slab.
    rest: *mut u8,
    rest_bytes: usize,
    slabs: Vec<(NonNull<u8>, Layout)>,
    slabs_bytes: usize,
}

/// The memory of the towers of one index.
pub(crate) struct Slabs {
    /// By height, less one.
    freed: [AtomicPtr<Freed>; MAX_HEIGHT],
    fresh: Mutex<Fresh>,
}

// SAFETY: the slabs own their memory and know nothing of its content. All that threads share is
// under the lock, or atomic and owned by the thread that takes it out of its list.
unsafe impl Send for Slabs {}
// SAFETY: as above.
unsafe impl Sync for Slabs {}

impl Slabs {
    pub(crate) fn new() -> Self {
        Slabs {
            freed: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_HEIGHT],
            fresh: Mutex::new(Fresh {
                rest: ptr::null_mut(),
                rest_bytes: 0,
                slabs: Vec::new(),
                slabs_bytes: 0,
            }),
        }
    }

    /// Memory for a tower of `height` links, whose layout this is; always the same for one height.
    pub(crate) fn allocate(&self, height: usize, layout: Layout) -> NonNull<u8> {
        if cfg!(miri) {
            // With this an interpreter sees every use of freed memory.
            return allocate(layout);
        }
        let mut fresh = self.fresh.lock();
        let freed = self.take_freed(height);
        freed.unwrap_or_else(|| fresh.take(layout))
    }

    /// The caller holds `fresh`.
    fn take_freed(&self, height: usize) -> Option<NonNull<u8>> {
        let list = &self.freed[height - 1];
        loop {
            let first = NonNull::new(list.load(Ordering::Acquire))?;
            // SAFETY: `free` wrote it, which the load makes visible, and no other thread takes it
            // out.
            let next = unsafe { first.as_ref() }.next;
            let taken =
                list.compare_exchange(first.as_ptr(), next, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return Some(first.cast());
            }
        }
    }

    /// # Safety
    /// `memory` came from `allocate` of these slabs for this height and layout, is freed once, and
    /// no thread uses it any more.
    pub(crate) unsafe fn free(&self, memory: NonNull<u8>, height: usize, layout: Layout) {
        if cfg!(miri) {
            // SAFETY: the caller's promise.
            return unsafe { dealloc(memory.as_ptr(), layout) };
        }
        const { assert!(align_of::<Freed>() <= align_of::<AtomicPtr<u8>>()) };
        let memory = memory.cast::<Freed>();
        let list = &self.freed[height - 1];
        let mut next = list.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's promise; a tower has room for a word and begins with an atomic
            // one.
            unsafe { memory.write(Freed { next }) };
            match list.compare_exchange(next, memory.as_ptr(), Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => next = now,
            }
        }
    }
}

impl Fresh {
    fn take(&mut self, layout: Layout) -> NonNull<u8> {
        if self.rest_bytes < layout.size() {
            self.grow(layout);
        }
        let memory = self.rest;
        self.rest_bytes -= layout.size();
        // SAFETY: the rest was large enough.
        self.rest = unsafe { memory.add(layout.size()) };
        NonNull::new(memory).expect("a slab")
    }

    /// Begins a new slab, large enough for `layout`. The few bytes that are left of the last are
    /// given up.
    fn grow(&mut self, layout: Layout) {
        let size = (self.slabs_bytes / PART).max(LEAST_BYTES).max(layout.size());
        // Layouts differ in size only, which is a multiple of the alignment.
        let slab = Layout::from_size_align(size, layout.align()).expect("a slab fits in memory");
        let memory = allocate(slab);
        self.slabs.push((memory, slab));
        self.slabs_bytes += size;
        (self.rest, self.rest_bytes) = (memory.as_ptr(), size);
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        for &(memory, layout) in &self.slabs {
            // SAFETY: allocated with this layout. Every tower's owner shares the slabs, so none is
            // left.
            unsafe { dealloc(memory.as_ptr(), layout) }
        }
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0, "a tower has a link");
    // SAFETY: just checked that the layout is not empty.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn layout(height: usize) -> Layout {
        Layout::from_size_align(24 + 24 * height, 8).unwrap()
    }

    fn allocate(slabs: &Slabs, height: usize) -> NonNull<u8> {
        slabs.allocate(height, layout(height))
    }

    #[test]
    fn memory_of_a_tower_goes_to_the_next_of_its_height() {
        let slabs = Slabs::new();
        let towers: Vec<_> = (1..=3).map(|height| allocate(&slabs, height)).collect();
        // SAFETY: allocated with this height, and not used.
        unsafe { slabs.free(towers[1], 2, layout(2)) };
        assert_ne!(allocate(&slabs, 1), towers[1]);
        assert_ne!(allocate(&slabs, 3), towers[1]);
        assert_eq!(allocate(&slabs, 2), towers[1]);
        assert!(!towers.contains(&allocate(&slabs, 2)));
    }

    #[test]
    fn slabs_take_little_more_memory_than_is_used() {
        let slabs = Slabs::new();
        let mut used = 0;
        for number in 1..20_000_usize {
            let height = 1 + number.trailing_zeros() as usize;
            allocate(&slabs, height);
            used += layout(height).size();
            let taken = slabs.fresh.lock().slabs_bytes;
            // The unused rest of the last slab, and what was given up at the end of each.
            assert!(taken <= used + used / 8 + LEAST_BYTES, "{taken} for {used}");
        }
    }

    #[test]
    fn towers_that_others_free_are_reused_once() {
        let slabs = Slabs::new();
        let alive = Mutex::new(HashSet::new());
        thread::scope(|scope| {
            let (slabs, alive) = (&slabs, &alive);
            for _ in 0..2 {
                let (sender, receiver) = mpsc::sync_channel::<(usize, usize)>(16);
                scope.spawn(move || {
                    for number in 0..3000 {
                        let height = 1 + number % 2;
                        let tower = allocate(slabs, height).as_ptr().expose_provenance();
                        assert!(alive.lock().insert(tower), "a tower that is in use");
                        sender.send((tower, height)).expect("the other thread frees it");
                    }
                });
                scope.spawn(move || {
                    for (tower, height) in receiver {
                        assert!(alive.lock().remove(&tower));
                        let tower = ptr::with_exposed_provenance_mut(tower);
                        // SAFETY: allocated with this height, and no other thread frees it.
                        unsafe { slabs.free(NonNull::new(tower).unwrap(), height, layout(height)) };
                    }
                });
            }
        });
        assert!(alive.lock().is_empty());
    }
}
