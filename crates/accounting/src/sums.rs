//! The sums over all extents and tree blocks.

use crate::forest::Forest;
use crate::leaves::Counted;
use crate::opened::Opened;
use crate::places::{DELETED, FIRST_ROOT, INTERNAL, PlaceId, Places};
use crate::reference::{CLOSED, Reference};
use crate::root_sets::{RootSets, SetId};
use crate::roots::Roots;
use crate::sorter::Sorted;
use crate::stored_as::StoredAs;
use crate::watch::{AccountingPhase, Watch};
use larder_filesystem::Result;

/// Sums over extents, by the way that they are stored.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extents {
    pub(crate) count: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) ram_bytes: u64,
}

/// All sums.
pub(crate) struct Sums {
    pub(crate) places: Places,
    pub(crate) counted: Counted,
    /// Bytes of extents by the set of trees that refer to them.
    pub(crate) disk_by_set: Vec<u64>,
    /// Tree blocks by the set of trees that have them.
    pub(crate) blocks_by_set: Vec<u64>,
    pub(crate) extents: [Extents; StoredAs::COUNT],
    /// The place of each tree if it is closed.
    pub(crate) closed: Vec<Option<PlaceId>>,
}

/// The references to one extent so far.
struct Shared {
    extent: u64,
    disk_bytes: u64,
    ram_bytes: u64,
    stored_as: u8,
    set: SetId,
    /// The only inode number that refers to it.
    inode: Option<u64>,
    file_bytes: u64,
    /// The place of a file by its first name.
    file: Option<PlaceId>,
    /// Where all references meet; none if there is no place yet.
    common: Option<PlaceId>,
    /// The place of the first reference, if it is that of all.
    start: Option<PlaceId>,
}

impl Sums {
    pub(crate) fn new(places: Places, roots: &Roots, opened: &Opened, counted: Counted) -> Self {
        let closed = |root: u32| match root {
            _ if root >= roots.with_deleted => Some(INTERNAL),
            _ if root >= roots.subvolumes => Some(DELETED),
            _ => (!opened.has(root)).then_some(FIRST_ROOT + root),
        };
        let closed = (0..roots.all.len() as u32).map(closed).collect();
        let (disk_by_set, blocks_by_set) = (Vec::new(), Vec::new());
        let extents = [Extents::default(); StoredAs::COUNT];
        Self { places, counted, disk_by_set, blocks_by_set, extents, closed }
    }

    /// Adds tree blocks.
    pub(crate) fn add_blocks(&mut self, forest: &Forest, sets: &RootSets) {
        self.blocks_by_set.clone_from(&forest.block_counts);
        for (root, bytes) in (0..).zip(by_root(&self.counted.file_bytes, sets, self.closed.len())) {
            if let Some(place) = self.closed[root as usize] {
                add(&mut self.places.all[place as usize].file_bytes, bytes);
            }
        }
    }

    /// Adds extents by their references, and sums up what places hold.
    pub(crate) fn add_extents(
        &mut self,
        mut references: Sorted<Reference>,
        sets: &mut RootSets,
        watch: &mut Watch<'_>,
    ) -> Result<()> {
        let total = references.len();
        let mut shared: Option<Shared> = None;
        let mut done = 0;
        while let Some(reference) = references.next()? {
            if done % 4096 == 0 {
                watch.tell(AccountingPhase::Extents, done, total)?;
            }
            done += 1;
            if shared.as_ref().is_none_or(|shared| shared.extent != reference.extent)
                && let Some(before) = shared.replace(Shared::new(&reference))
            {
                self.end_extent(&before, sets);
            }
            if let Some(shared) = &mut shared {
                shared.set = sets.union(shared.set, reference.set)?;
                self.add_reference(shared, &reference);
            }
        }
        if let Some(shared) = &shared {
            self.end_extent(shared, sets);
        }
        self.disk_by_set.resize(sets.len(), 0);
        self.places.sum_up();
        Ok(())
    }

    fn add_reference(&mut self, shared: &mut Shared, reference: &Reference) {
        shared.stored_as = shared.stored_as.min(reference.stored_as);
        shared.inode = shared.inode.filter(|inode| *inode == reference.inode);
        add(&mut shared.file_bytes, reference.file_bytes);
        if reference.root == CLOSED {
            return;
        }
        let place = self.places.of_reference(reference);
        add(&mut self.places.all[place as usize].file_bytes, reference.file_bytes);
        if reference.is_further_name == 0 {
            shared.file = Some(place);
        }
        self.places.count_loose(place, shared.extent, shared.disk_bytes);
        self.meet(shared, place);
    }

    fn meet(&mut self, shared: &mut Shared, place: PlaceId) {
        self.places.count(place, shared.extent, shared.disk_bytes);
        match shared.common {
            None => (shared.common, shared.start) = (Some(place), Some(place)),
            Some(common) => {
                shared.common = Some(self.places.common(common, place));
                shared.start = shared.start.filter(|start| *start == place);
            }
        }
    }

    fn end_extent(&mut self, shared: &Shared, sets: &RootSets) {
        let mut shared = Shared { ..*shared };
        for root in sets.members(shared.set) {
            if let Some(place) = self.closed[root as usize] {
                self.meet(&mut shared, place);
            }
        }
        let Shared { disk_bytes, ram_bytes, file_bytes, set, inode, common, start, .. } = shared;
        if let Some(common) = common {
            add(&mut self.places.all[common as usize].exclusive_bytes, disk_bytes);
        }
        if let Some(start) = start {
            let place = &mut self.places.all[start as usize];
            add(&mut place.loose_exclusive_bytes, disk_bytes);
        }
        if let Some(file) = shared.file.or(common)
            && inode.is_some()
            && sets.only(set).is_some()
        {
            add(&mut self.places.all[file as usize].unshared_file_bytes, file_bytes);
        }
        let extents = &mut self.extents[usize::from(shared.stored_as)];
        extents.count += 1;
        add(&mut extents.disk_bytes, disk_bytes);
        add(&mut extents.ram_bytes, ram_bytes);
        if self.disk_by_set.len() < sets.len() {
            self.disk_by_set.resize(sets.len(), 0);
        }
        add(&mut self.disk_by_set[set as usize], disk_bytes);
    }
}

impl Shared {
    fn new(first: &Reference) -> Self {
        Self {
            extent: first.extent,
            disk_bytes: first.disk_bytes,
            ram_bytes: first.ram_bytes,
            stored_as: first.stored_as,
            set: first.set,
            inode: Some(first.inode),
            file_bytes: 0,
            file: None,
            common: None,
            start: None,
        }
    }
}

/// What each of `count` trees has together with others, from what each set of trees has.
pub(crate) fn by_root(by_set: &[u64], sets: &RootSets, count: usize) -> Vec<u64> {
    // What begins with a tree, and what ends before it: together less than `u128` holds.
    let mut changes = vec![(0_u128, 0_u128); count + 1];
    for (set, bytes) in (0..).zip(by_set) {
        for (first, last) in sets.runs(set) {
            changes[*first as usize].0 += u128::from(*bytes);
            changes[*last as usize + 1].1 += u128::from(*bytes);
        }
    }
    let mut sum = 0;
    let mut sums = changes.into_iter().map(|(begins, ends)| {
        sum = sum + begins - ends;
        u64::try_from(sum).unwrap_or(u64::MAX)
    });
    sums.by_ref().take(count).collect()
}

/// What each of `count` trees has alone.
pub(crate) fn alone(by_set: &[u64], sets: &RootSets, count: usize) -> Vec<u64> {
    let mut sums = vec![0; count];
    for (set, bytes) in (0..).zip(by_set) {
        if let Some(root) = sets.only(set) {
            add(&mut sums[root as usize], *bytes);
        }
    }
    sums
}

/// Adds; a damaged image may have sums that pass any number.
pub(crate) fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}
