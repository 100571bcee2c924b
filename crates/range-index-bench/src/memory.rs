//! Bytes per entry, with an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread;

use crossbeam_skiplist::SkipMap;
use intrusive_collections::RBTree;
use parking_lot::{Mutex, RwLock};
use scc::TreeIndex;

use crate::Arguments;
use crate::maps::{ByStart, Index, LockFreeTree, Map};
use crate::read_write::filled;

/// Counts bytes that are allocated and not yet freed.
pub(crate) struct Counting;

static ASKED: AtomicIsize = AtomicIsize::new(0);
static CHUNKS: AtomicIsize = AtomicIsize::new(0);
static ON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// The bytes of a common allocator for a request: with a word of header, in steps of 16, at least
/// 32.
fn chunk(bytes: usize) -> isize {
    (bytes + 8).next_multiple_of(16).max(32) as isize
}

fn count(sign: isize, bytes: usize) {
    if ON.load(Ordering::Relaxed) {
        ASKED.fetch_add(sign * bytes as isize, Ordering::Relaxed);
        CHUNKS.fetch_add(sign * chunk(bytes), Ordering::Relaxed);
    }
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-1, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Lets reclamation by epochs catch up.
fn settle() {
    for _ in 0..1000 {
        crossbeam_epoch::pin().flush();
        drop(scc::Guard::new());
    }
}

fn row<M: Map>(entries: u64) -> [f64; 4] {
    let measure = |fill: &(dyn Fn() -> M + Sync)| {
        settle();
        ASKED.store(0, Ordering::Relaxed);
        CHUNKS.store(0, Ordering::Relaxed);
        // A thread may keep spare memory, which is not part of the map.
        let map = thread::scope(|scope| {
            let filler = scope.spawn(|| {
                ON.store(true, Ordering::Relaxed);
                let map = fill();
                settle();
                map
            });
            filler.join().expect("the map is filled")
        });
        ON.store(false, Ordering::Relaxed);
        drop(map);
        [&ASKED, &CHUNKS].map(|sum| sum.load(Ordering::Relaxed) as f64 / entries as f64)
    };
    let ascending = || {
        let map = M::new();
        for slot in 0..entries {
            assert!(map.insert(slot * 16, slot * 16 + 8, slot));
        }
        map
    };
    let [asked, chunks] = measure(&|| filled::<M>(entries));
    let [asked_up, chunks_up] = measure(&ascending);
    [asked, chunks, asked_up, chunks_up]
}

pub(crate) fn print(arguments: &Arguments) {
    for &entries in &arguments.entries {
        println!(
            "\n{entries} entries of 24 bytes (start, end, value): bytes per entry, asked for and as a common allocator rounds them up\n"
        );
        println!("| map | random order | rounded up | ascending | rounded up |");
        println!("| --- | ---: | ---: | ---: | ---: |");
        let show = |name: &str, row: &dyn Fn() -> [f64; 4]| {
            if arguments.wants(name) {
                let [asked, chunks, asked_up, chunks_up] = row();
                println!(
                    "| `{name}` | {asked:.1} | {chunks:.1} | {asked_up:.1} | {chunks_up:.1} |"
                );
            }
        };
        show(Index::NAME, &|| row::<Index>(entries));
        show("BTreeMap", &|| row::<Arc<RwLock<BTreeMap<_, _>>>>(entries));
        show("red-black tree", &|| row::<Arc<Mutex<RBTree<ByStart>>>>(entries));
        show("crossbeam-skiplist", &|| row::<Arc<SkipMap<_, _>>>(entries));
        show(LockFreeTree::NAME, &|| row::<LockFreeTree>(entries));
        show("scc::TreeIndex", &|| row::<Arc<TreeIndex<_, _>>>(entries));
    }
}
