//! Checkpoints: the map as it is in the store.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::codec::Malformed;
use crate::error::ObjectsError;
use crate::fetch::fetch;
use crate::id::{Kind, ObjectId};
use crate::store::Store;

use super::list::{self, NodeRef};
use super::merge::Change;
use super::page::MOST_EXTENTS;
use super::root::Root;
use super::{Extent, ObjectRecord, Page, PageRef, RootRef, merge};

/// Up to this length, all pages of an object are read with its root.
const SHORT_BYTES: u64 = 1 << 20;

/// The most pages in memory.
const MOST_PAGES: usize = 256;

/// The map at one state: where its pages lie, and those of them that were needed lately.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    root: Root,
    /// Where the root lies. A device without a checkpoint is all zeros.
    pub(crate) at: Option<RootRef>,
    pub(crate) pages: Vec<PageRef>,
    loaded: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Each with the number of the lookup that used it last.
    loaded: HashMap<usize, (Arc<Page>, u64)>,
    lookups: u64,
}

impl Pages {
    fn get(&mut self, index: usize) -> Option<Arc<Page>> {
        self.lookups += 1;
        let (page, used) = self.loaded.get_mut(&index)?;
        *used = self.lookups;
        Some(Arc::clone(page))
    }

    fn put(&mut self, index: usize, page: &Arc<Page>) {
        if self.loaded.len() >= MOST_PAGES {
            let oldest = self.loaded.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(index, _)| *index) {
                self.loaded.remove(&oldest);
            }
        }
        self.loaded.insert(index, (Arc::clone(page), self.lookups));
    }
}

impl Checkpoint {
    /// Reads the root and the list of pages, and the pages that lie before the root in its object,
    /// if they are short. Others follow when they are needed.
    pub(crate) fn load(store: &dyn Store, at: Option<RootRef>) -> Result<Self, ObjectsError> {
        let Some(at) = at else { return Ok(Self::default()) };
        let name = Kind::Map.name(at.object);
        let cut_off = Malformed("it is cut off");
        let first = if at.offset <= SHORT_BYTES { 0 } else { at.offset };
        let (root, bytes) = fetch(store, &name, first..at.offset + at.len, |bytes| {
            let root = bytes.get((at.offset - first) as usize..).ok_or(cut_off)?;
            Ok((Root::decode(root, at.identity())?, bytes.clone()))
        })?;
        // What came along is used if it is sound; what is not is fetched again when it is needed.
        let here = |object, offset: u64, len: u64| {
            let range = offset as usize..offset.saturating_add(len) as usize;
            bytes.get(range).filter(|_| object == at.object && first == 0)
        };
        let is_here = |node: &&NodeRef| here(node.object, node.offset, node.len).is_some();
        let (near, far): (Vec<_>, Vec<_>) = root.pages.iter().partition(is_here);
        let far: Vec<NodeRef> = far.into_iter().copied().collect();
        let mut list: Vec<PageRef> = list::read(store, &far)?;
        for node in near {
            let bytes = here(node.object, node.offset, node.len).expect("it is here");
            match list::decode::<PageRef>(bytes, node.identity()) {
                Ok(pages) => list.extend(pages),
                Err(_) => list.extend(node.read::<PageRef>(store)?),
            }
        }
        list.sort_unstable_by_key(|page| page.first);
        let list = list::in_order(store, &root.pages, list)?;
        let mut pages = Pages::default();
        let mut kept = 0;
        for (index, page) in list.iter().enumerate() {
            let Some(bytes) = here(page.object, page.offset, page.len) else { continue };
            if let Ok(page) = Page::decode(bytes, page.identity())
                && kept < MOST_PAGES
            {
                pages.put(index, &Arc::new(page));
                kept += 1;
            }
        }
        if list.first().is_some_and(|page| page.first != 0) {
            return Err(ObjectsError::damaged(store, &name, &"its first page is missing"));
        }
        Ok(Self { root, at: Some(at), pages: list, loaded: Mutex::new(pages) })
    }

    /// Whether the lists have nodes in a map object.
    pub(crate) fn has_nodes_in(&self, id: ObjectId) -> bool {
        self.root.has_nodes_in(id)
    }

    /// Reads the list of objects.
    pub(crate) fn read_objects(
        &self,
        store: &dyn Store,
    ) -> Result<Vec<ObjectRecord>, ObjectsError> {
        list::read(store, &self.root.objects)
    }

    /// The extents in `range`, in order, with their parts outside it cut away.
    pub(crate) fn within(
        &self,
        store: &dyn Store,
        range: Range<u64>,
    ) -> Result<Vec<Extent>, ObjectsError> {
        let pages = &self.pages;
        let first = pages.partition_point(|page| page.first <= range.start).saturating_sub(1);
        let mut found = Vec::new();
        let end = pages.partition_point(|page| page.first < range.end);
        for index in first..end {
            found.extend(self.page(store, index)?.within(range.clone()));
        }
        Ok(found)
    }

    pub(crate) fn page(&self, store: &dyn Store, index: usize) -> Result<Arc<Page>, ObjectsError> {
        if let Some(page) = self.loaded.lock().get(index) {
            return Ok(page);
        }
        let page = Arc::new(self.read_page(store, index)?);
        self.loaded.lock().put(index, &page);
        Ok(page)
    }

    /// Reads a page from the store.
    pub(crate) fn read_page(&self, store: &dyn Store, index: usize) -> Result<Page, ObjectsError> {
        let page = self.pages[index];
        let range = page.offset..page.offset + page.len;
        let decode = |bytes: &Bytes| Page::decode(bytes, page.identity());
        fetch(store, &Kind::Map.name(page.object), range, decode)
    }

    /// The first byte after those that page `index` knows.
    fn page_end(&self, index: usize) -> u64 {
        self.pages.get(index + 1).map_or(u64::MAX, |next| next.first)
    }
}

/// A checkpoint that is not in the store yet.
#[derive(Debug)]
pub(crate) struct NewCheckpoint {
    /// The map object.
    content: Vec<u8>,
    pub(crate) id: ObjectId,
    pages: Vec<PageRef>,
    /// All objects, the new one, too.
    pub(crate) objects: Vec<ObjectRecord>,
}

impl NewCheckpoint {
    /// The checkpoint that follows `before`: with `changes`, which are sorted and do not overlap, and
    /// with the objects that were there before and those that were added. Their live bytes are
    /// counted here. It lies in the map object `id`, and belongs to the state `number`.
    ///
    /// Reads the pages that change.
    pub(crate) fn after(
        before: &Checkpoint,
        store: &dyn Store,
        changes: &[Change],
        mut objects: Vec<ObjectRecord>,
        id: ObjectId,
        number: u64,
    ) -> Result<Self, ObjectsError> {
        let mut new = Building {
            live: objects.iter().map(|it| (it.id, it.live_bytes)).collect(),
            id,
            pages: Vec::new(),
            content: Vec::new(),
        };
        let regions = before.pages.len().max(1);
        let mut changes = changes;
        for index in 0..regions {
            let region = before.pages.get(index);
            let end = before.page_end(index);
            let (here, rest) = split(changes, end);
            changes = rest;
            match region {
                Some(page) if here.is_empty() => new.keep(*page),
                Some(page) => {
                    new.lose(page.object, page.len);
                    let old = before.page(store, index)?;
                    new.change(page.first, old.extents().iter().copied(), &here);
                }
                None => new.change(0, [], &here),
            }
        }
        let Building { live, mut pages, mut content, .. } = new;
        if let Some(first) = pages.first_mut() {
            first.first = 0;
        }
        for object in &mut objects {
            object.live_bytes = live[&object.id];
            // The nodes of the lists are looked at one checkpoint later: which objects die is in
            // those that this one writes.
            let has_nodes = object.kind == Kind::Map && before.has_nodes_in(object.id);
            if object.live_bytes == 0 && object.died.is_none() && !has_nodes {
                object.died = Some(number);
            }
        }
        let pages_bytes = content.len() as u64;
        objects.push(ObjectRecord {
            kind: Kind::Map,
            id,
            // What follows the pages is not known before it is encoded, and counts little.
            len_bytes: pages_bytes,
            born: number,
            live_bytes: pages_bytes,
            died: None,
            doomed: None,
        });
        objects.sort_unstable_by_key(|object| object.id);
        content.shrink_to_fit();
        Ok(Self { content, id, pages, objects })
    }

    /// The map object, the checkpoint, and its objects, none of which changes any more. `before` is
    /// the checkpoint before, with the objects `old`.
    pub(crate) fn finish(
        self,
        before: &Checkpoint,
        old: &[ObjectRecord],
    ) -> (Vec<u8>, Checkpoint, Vec<ObjectRecord>) {
        let Self { mut content, id, pages, objects } = self;
        let root = Root {
            pages: list::write(&before.root.pages, &before.pages, &pages, id, &mut content),
            objects: list::write(&before.root.objects, old, &objects, id, &mut content),
        };
        let offset = content.len() as u64;
        let encoded = root.encode(list::identity(id, offset));
        let len = encoded.len() as u64;
        content.extend(encoded);
        let at = Some(RootRef { object: id, offset, len });
        (content, Checkpoint { root, at, pages, loaded: Mutex::default() }, objects)
    }
}

/// The changes before `end` and those after it; one that passes `end` is cut.
fn split(changes: &[Change], end: u64) -> (Vec<Change>, &[Change]) {
    // A change that passes the end of one page was cut for it, and is cut again for the next.
    let within = changes.partition_point(|(range, _)| range.start < end);
    let here = changes[..within]
        .iter()
        .map(|(range, source)| (range.start..range.end.min(end), *source))
        .collect();
    let passes = within > 0 && changes[within - 1].0.end > end;
    (here, &changes[within - usize::from(passes)..])
}

/// A map object while pages are added to it.
struct Building {
    /// The live bytes of all objects except the new one.
    live: HashMap<ObjectId, u64>,
    id: ObjectId,
    pages: Vec<PageRef>,
    content: Vec<u8>,
}

impl Building {
    fn keep(&mut self, page: PageRef) {
        self.pages.push(page);
    }

    fn lose(&mut self, object: ObjectId, bytes: u64) {
        if let Some(live) = self.live.get_mut(&object) {
            *live = live.saturating_sub(bytes);
        }
    }

    /// Adds pages for a region that begins at `first`: `old` with `changes`.
    fn change(&mut self, first: u64, old: impl IntoIterator<Item = Extent>, changes: &[Change]) {
        let start = first;
        let changes: Vec<_> = changes
            .iter()
            .map(|(range, source)| {
                let cut = start.saturating_sub(range.start);
                (range.start + cut..range.end, source.map(|source| source.plus(cut)))
            })
            .collect();
        let mut gone = Vec::new();
        let merged = merge(old, &changes, |extent| gone.push(extent));
        for extent in gone {
            self.lose(extent.source.segment, extent.len);
        }
        for (range, source) in &changes {
            if let Some(live) = source.and_then(|source| self.live.get_mut(&source.segment)) {
                *live += range.end - range.start;
            }
        }
        if merged.is_empty() {
            return;
        }
        let each = merged.len().div_ceil(merged.len().div_ceil(MOST_EXTENTS));
        for (index, extents) in merged.chunks(each).enumerate() {
            let first = if index == 0 { first } else { extents[0].start };
            let offset = self.content.len() as u64;
            let encoded = Page::new(extents.to_vec()).encode(list::identity(self.id, offset));
            let len = encoded.len() as u64;
            self.pages.push(PageRef { first, object: self.id, offset, len });
            self.content.extend(encoded);
        }
    }
}
