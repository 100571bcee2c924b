//! A reader that is overtaken: while it is about to read a block, two commits pass, and its address
//! then holds another block. The reader searches again; a block that is really bad is still an
//! error.

use std::sync::{Arc, Mutex};

use larder_btree::{
    BlockStore, Expected, LiveTree, LockPolicy, MemoryStore, Readahead, StoreError,
};
use larder_format::Logical;

use crate::support::space::World;
use crate::support::{TREE, key};

type Hook = Box<dyn FnOnce() + Send>;

/// Calls a hook once, when siblings of a block that will be read are announced: the reader holds no
/// lock then.
struct Interrupted {
    store: Arc<MemoryStore>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl BlockStore for Interrupted {
    fn nodesize(&self) -> usize {
        self.store.nodesize()
    }

    fn read(&self, expected: &Expected, buf: &mut [u8]) -> Result<(), StoreError> {
        self.store.read(expected, buf)
    }

    fn readahead(&self, _logical: Logical, _len_bytes: u64) {
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
    }
}

const ITEMS: u64 = 6000;
const NODESIZE: usize = 4096;
/// The item that the reader looks for.
const WANTED: u64 = 20;

/// A tree in memory and in the store, whose leaf with the wanted item is in the store only.
fn world(hook: &Arc<Mutex<Option<Hook>>>) -> Arc<World> {
    loop {
        let hook = hook.clone();
        // The smallest possible cache: the first leaves are evicted by the last.
        let world = World::over(NODESIZE, LockPolicy::default(), 0, |store| {
            Arc::new(Interrupted { store, hook })
        });
        let tree = world.tree();
        for number in 0..ITEMS {
            tree.insert(key(number), &[1; 100]).unwrap();
        }
        world.commit();
        let leaf = tree.get_item(key(WANTED)).unwrap().unwrap().leaf().logical();
        read_others(&tree);
        // A cache spreads addresses at random. One that spreads them badly keeps the leaf.
        if !world.forest.cache().contains(leaf) {
            return Arc::new(world);
        }
    }
}

fn read_others(tree: &LiveTree) {
    for number in ITEMS / 2..ITEMS {
        tree.get(key(number)).unwrap();
    }
}

#[test]
fn a_reader_that_two_commits_overtake_begins_again() {
    let hook = Arc::new(Mutex::new(None::<Hook>));
    let world = world(&hook);
    let other = world.clone();
    *hook.lock().unwrap() = Some(Box::new(move || two_commits(&other)));
    let tree = world.forest.tree(TREE).unwrap();
    let mut cursor = tree.cursor(Readahead::Forward);
    assert!(cursor.seek(key(WANTED)).unwrap());
    assert!(hook.lock().unwrap().is_none(), "the reader was overtaken");
    assert_eq!(cursor.item(), Some((key(WANTED), &[2; 100][..])));
}

/// Replaces the leaf of the wanted item, and all above it, and reuses their addresses.
fn two_commits(world: &World) {
    let tree = world.forest.tree(TREE).unwrap();
    tree.modify(key(WANTED), |data| data.fill(2)).unwrap();
    let replaced: Vec<Logical> = world.space.replaced.lock().iter().copied().collect();
    assert!(replaced.len() > 1, "the leaf and the nodes above it");
    world.commit();
    world.space.unpin(replaced.clone());
    for number in (ITEMS / 2..ITEMS).step_by(500) {
        tree.modify(key(number), |data| data.fill(3)).unwrap();
    }
    let in_use = world.space.in_use.lock().clone();
    assert!(replaced.iter().all(|address| in_use.contains(address)));
    world.commit();
}

#[test]
fn a_bad_block_is_an_error_though_the_search_begins_again() {
    let world = world(&Arc::default());
    let tree = world.forest.tree(TREE).unwrap();
    let leaf = tree.get_item(key(WANTED)).unwrap().unwrap().leaf().logical();
    world.store.damage(leaf, |bytes| bytes[80] ^= 1);
    read_others(&tree);
    assert_eq!(tree.get(key(WANTED)).unwrap_err().logical, leaf);
}
