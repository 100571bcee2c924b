//! Delayed items: changes of a directory's index and of inode items wait in memory, and go into the
//! trees many at a time.
//!
//! A name is in a DIR_ITEM, which is found by its hash, and in a DIR_INDEX, by which it is listed.
//! The first goes into the tree at once: it says whether the name exists. The second is queued in
//! its directory; indexes ascend, so that a whole queue goes into one leaf after another. The item
//! of an inode that changes again and again is written once.
//!
//! # Invariants
//! - An inode is among the [`DelayedInodes`](table::DelayedInodes) if and only if something of it is
//!   queued. It stays in memory meanwhile, so that no thread reads an outdated item from the tree.
//! - An index is to be inserted and not in the tree, or in the tree, or in the tree and to be
//!   deleted. A thread that lists a directory holds its queue while it reads the tree, so that it
//!   sees each name once.
//! - Space is reserved for everything that is queued: the worst case of inserting one item for
//!   every leaf that queued insertions will touch, for every deletion, and for an inode's item. A
//!   change for which there is too little space is not queued: the handle of its thread has space
//!   to make it at once. Queueing therefore never fails.
//! - Every commit inserts all queued items into the trees while transactions are quiesced, and so
//!   does every snapshot before it is taken. Most of them are inserted earlier, while other threads
//!   go on.
//! - An inode without a name has nothing queued: after its last handle only the tree's items are
//!   left to delete.
//! - The queues are bounded, each and all together. A thread that finds them full empties them.
//!   Space flushing empties them first.
//! - Lock order: the join gate, an inode's state, its queue, tree blocks and the table of delayed
//!   inodes. A thread that inserts queued items into a tree is joined.

pub(crate) mod items;
pub(crate) mod listing;
pub(crate) mod queue;
pub(crate) mod queued;
pub(crate) mod reservation;
pub(crate) mod table;
