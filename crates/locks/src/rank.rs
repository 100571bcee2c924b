//! The ranks of all locks, in order.

/// A rank: what `docs/locking.md` says of it.
#[derive(Clone, Copy, Debug)]
pub struct Rank {
    /// Its name in this module.
    pub name: &'static str,
    /// Its number in the page. Ranks with one number belong together.
    pub step: &'static str,
    /// The lock.
    pub lock: &'static str,
    /// Where it is.
    pub place: &'static str,
    /// As long as it is held.
    pub held_while: &'static str,
    /// A thread may hold several locks of this rank, which have an order of their own.
    pub has_several: bool,
}

macro_rules! ranks {
    ($($step:literal $name:ident $several:literal $lock:literal $place:literal $held:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "they number constants")]
        enum Number { $($name,)* }

        $(
            #[doc = concat!("Rank of ", $lock, ".")]
            pub const $name: u8 = Number::$name as u8;
        )*

        /// All of them, by number.
        pub const ALL: &[Rank] = &[$(Rank {
            name: stringify!($name),
            step: $step,
            lock: $lock,
            place: $place,
            held_while: $held,
            has_several: $several,
        },)*];
    };
}

ranks! {
    "0" APPENDING false "`appending` of a file" "`filesystem`, `live/inode.rs`"
        "a thread looks where the file ends, and writes there";
    "0" RENAMES false "`renames` of `Writer`" "`filesystem`, `core/writer.rs`"
        "a name moves, or, shared, a thread needs all to stay where they are";
    "0" SUBVOLUMES false "`subvolumes` of `Writer`" "`filesystem`, `core/writer.rs`"
        "a subvolume is made, removed or marked";
    "0" SYNC_TURN false "the turn in `Syncs`" "`filesystem`, `live/sync_queue.rs`"
        "one thread writes logs for all that wait, or commits";
    "1" TICKETS false "tickets of threads that find no space, by kind and priority"
        "`transaction`, `space_waiters.rs`, `space_flush.rs`"
        "a thread flushes space for the first ticket";
    "1" DIRTY_TURN false "the turn of the thread that frees memory of dirty data"
        "`filesystem`, `cache/dirty_space.rs`"
        "one thread writes back the data of all files; the other writers wait";
    "1" COMMITTING false "`committing`, with the logs of the running transaction"
        "`transaction`, `TransactionManager`"
        "a commit, from its beginning until it is durable; the writing of logs likewise";
    "1" CHANGING true "`changing` of files, by subvolume and number" "`filesystem`, `change/locks.rs`"
        "data or size of a file are changed";
    "1" FLUSHING true "`flushing` of files, by subvolume and number" "`filesystem`, `change/locks.rs`"
        "data of a file is written back, or its extents change in another way";
    "2, 3" GATE true "the join gate, quiesced (`Exclusive`) or joined (`Handle`)"
        "`transaction`, `join_gate.rs`"
        "quiesced: queues are emptied into trees, references run, roots written; **not** while blocks are written. Joined: one operation on trees";
    "4" READING true "`reading` of a file" "`filesystem`, `live/inode.rs`"
        "shared: extents are looked up and read from devices; exclusive: extents are changed";
    "4" STATES true "states of inodes, by subvolume and number" "`filesystem`, `change/locks.rs`"
        "one operation on a file or directory, never during device I/O for data";
    "4" DELAYED false "the queue of delayed items of one inode" "`filesystem`, `live/delayed`"
        "an item is queued, or all are put into the tree or listed";
    "5" ROOTS false "`roots`" "`transaction`"
        "root items are changed in memory; root items are put into the root tree";
    "5" SUPERBLOCK false "`superblock`" "`transaction`"
        "the superblock is changed in memory";
    "6" TREE_BLOCKS true "tree blocks of subvolumes and the root tree: root pointer, parent, child, left before right"
        "`btree`, `lock/`" "one step of a descent, or what a change needs";
    "7" HOLDS true "a *hold* on a tree block that may be shared" "`transaction`, `DelayedRefs::lock_head`"
        "its references are counted and what follows is queued";
    "8" BOOKKEEPING false "`bookkeeping`" "`transaction`, `bookkeeping.rs`"
        "a batch of references is run: one thread at a time";
    "9" CHECKSUMS false "`checksums`" "the same"
        "the checksum tree is edited; a reader that found no checksum looks again";
    "10" BOOKKEEPING_BLOCKS true "tree blocks of the extent, free space, block group, checksum, chunk and device trees"
        "`btree`" "as in 6";
    "11" SPACE_DEVICES false "devices of `Space`" "`transaction`, `space/`"
        "a few instructions; making a chunk";
    "11" SPACE_CHANGES false "`changes` of `Space`" "the same" "a few instructions";
    "11" WITHHELD false "what kept states withhold" "`transaction`, `space/kept.rs`"
        "a few instructions";
    "11" POLICY false "the policy of `Space`" "the same" "a few instructions";
    "11" GROUPS false "groups of `Space`" "`transaction`, `space/`" "a few instructions";
    "11" PINNED false "`pinned` of `Space`" "the same" "a few instructions";
    "12" REFS false "the queue of delayed references" "`transaction`, `refs/`" "a few instructions";
    "12" MAY_USE false "`may_use`, which is owed for them" "`transaction`, `space/account.rs`"
        "a few instructions";
    "12" MOVED_ROOTS false "moved roots" "`transaction`, `tree_space.rs`" "a few instructions";
    "12" QUOTAS false "groups of `Quotas`" "`transaction`, `quota/`" "a few instructions";
    "12" COMMIT_TIMER false "the commit timer" "`transaction`, `commit_timer.rs`"
        "a few instructions";
    "13" BLOCK_CACHE false "the block cache's shards" "`btree`, `cache/`" "a lookup";
    "14" VOLUME_WRITING false "`writing` of the volume, shared by writes" "`volume`"
        "one write, or copying one piece of data while nobody writes";
    "14" GEOMETRY false "the volume's geometry" "`volume`" "a lookup, or replacing it";
    "14" LAST_SUPERBLOCK false "the volume's last superblock" "`volume`" "likewise";
    "14" ROWS true "rows of chunks with parity" "`volume`, `geometry.rs`" "one row is written";
}
