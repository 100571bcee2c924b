//! Which inodes are logged along with an inode, so that a replay leaves what fsync promised.
//!
//! A replay starts from the last commit, and knows other inodes only if they are logged. It gives a
//! name to the inode that the log says has it, and takes it from any other inode. It removes those
//! names of an inode that belong to a logged reference's key and are not logged. Hence:
//!
//! # Invariants
//! - An inode is logged with all its current names. Its directories are logged too if the last
//!   commit does not have them. So are inodes that had one of its names then and now live under
//!   another.
//! - If one of these inodes loses a name, the inode that has the name now is logged too: the name
//!   was never free.
//! - If a key of references that an inode had in the last commit is gone, there is a commit:
//!   otherwise a name that went with its key would stay.
//! - If a directory is logged with its names, inodes that were removed from it and live on are
//!   logged too.
//! - If a directory that was not empty in the last commit is gone, there is a commit. An empty one
//!   took no inode with it that lives on.
//! - An inode in the log is logged anew once its names have changed, and so is one that was synced
//!   lately. An inode that is gone is removed from the log if the last commit
//!   does not have it; otherwise there is a commit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use larder_btree::{LiveTree, Tree, TreeView};
use larder_format::item::{DirEntries, FileType, InodeItem};
use larder_format::objectid::FIRST_FREE;
use larder_format::{ItemType, Key, name_hash, read_exact_item};
use larder_transaction::LogWriter;

use crate::changed::Changed;
use crate::core::writer::Writer;
use crate::item::id::InodeId;
use crate::item::links::links_of_item;
use crate::live::inode::LiveInode;
use crate::live::logged_inodes::Renamed;
use crate::log::tree_difference::{Difference, differences};

/// With more names added to and removed from directories a commit is cheaper.
const MOST_NAMES: usize = 256;

/// A directory is logged along with a file that is new in it if no more names than that have
/// changed: many programs sync the directory next.
const MOST_NAMES_ALONG: usize = 4;

/// The inodes to log.
pub(crate) struct LogPlan {
    /// Existing inodes, and the names of those directories that are logged with their names.
    pub(crate) inodes: BTreeMap<InodeId, Option<NameChanges>>,
    /// Inodes in logs that are gone.
    pub(crate) gone: BTreeSet<InodeId>,
    pub(crate) trees: BTreeMap<u64, Trees>,
    /// Directories in which these inodes have names that the last commit lacks.
    named_in: BTreeSet<InodeId>,
}

/// A subvolume, now and in the last commit.
pub(crate) struct Trees {
    pub(crate) live: Arc<LiveTree>,
    pub(crate) committed: Tree,
}

/// A directory that is logged along with others.
pub(crate) struct Along {
    directory: Arc<LiveInode>,
    /// Of its changes, when the log was planned.
    sequence: u64,
}

impl Along {
    /// `None` if all changes of the directory are durable.
    fn of(writer: &Writer, id: InodeId) -> Option<Self> {
        let directory = writer.inodes.known(id)?;
        let sequence = directory.unsynced(writer.manager.durable_generation())?;
        Some(Self { directory, sequence })
    }

    /// Notes that it is durable.
    pub(crate) fn synced(&self) {
        self.directory.synced(self.sequence);
    }
}

/// The changes of the names in a directory since the last commit.
#[derive(Default)]
pub(crate) struct NameChanges {
    /// Entries that were added, by index.
    pub(crate) came: Vec<(u64, Vec<u8>)>,
    /// Indexes that were removed.
    pub(crate) went: Vec<u64>,
}

/// A name in the form of a reference.
type Name = (u64, u64, Vec<u8>);

/// Finds the inodes to log.
struct Search<'a, 'm, 'l> {
    writer: &'a Writer,
    logs: &'a LogWriter<'m, 'l>,
    plan: LogPlan,
    /// With more names added to and removed from a directory there is no plan.
    most_names: usize,
    /// Inodes still to be looked at, each with whether its names are.
    pending: Vec<(InodeId, bool)>,
}

impl LogPlan {
    /// The plan for these inodes, each with its names or without. `None` if it takes a commit.
    /// Changed directories in which they have new names are in it too if that costs little: returns
    /// those.
    pub(crate) fn of(
        writer: &Writer,
        logs: &LogWriter<'_, '_>,
        mut wanted: BTreeMap<InodeId, bool>,
    ) -> Changed<Option<(Self, Vec<Along>)>> {
        let Some(plan) = Self::search(writer, logs, &wanted, MOST_NAMES)? else { return Ok(None) };
        let is_wanted = |id: &&InodeId| wanted.get(id) == Some(&true);
        let others = plan.named_in.iter().filter(|id| !is_wanted(id));
        let along: Vec<_> = others.filter_map(|id| Along::of(writer, *id)).collect();
        if along.is_empty() {
            return Ok(Some((plan, along)));
        }
        wanted.extend(along.iter().map(|along| (along.directory.id(), true)));
        let longer = Self::search(writer, logs, &wanted, MOST_NAMES_ALONG)?;
        // Files in them that nobody synced stay out of the log.
        let is_known = |id: &InodeId| {
            plan.inodes.contains_key(id)
                || writer.logged_inodes.is_logged(*id)
                || along.iter().any(|along| along.directory.id() == *id)
        };
        if let Some(longer) = longer.filter(|longer| longer.inodes.keys().all(is_known)) {
            return Ok(Some((longer, along)));
        }
        Ok(Some((plan, Vec::new())))
    }

    fn search(
        writer: &Writer,
        logs: &LogWriter<'_, '_>,
        wanted: &BTreeMap<InodeId, bool>,
        most_names: usize,
    ) -> Changed<Option<Self>> {
        let plan = Self {
            inodes: BTreeMap::new(),
            gone: BTreeSet::new(),
            trees: BTreeMap::new(),
            named_in: BTreeSet::new(),
        };
        let mut search = Search { writer, logs, plan, most_names, pending: Vec::new() };
        search.pending.extend(wanted.iter().map(|(id, with_names)| (*id, *with_names)));
        while let Some((id, with_names)) = search.pending.pop() {
            if !search.visit(id, with_names, false)? {
                return Ok(None);
            }
        }
        for Renamed { id, is_logged } in writer.logged_inodes.renamed() {
            if !search.visit(id, false, is_logged)? {
                return Ok(None);
            }
            while let Some((id, with_names)) = search.pending.pop() {
                if !search.visit(id, with_names, false)? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(search.plan))
    }
}

impl Search<'_, '_, '_> {
    /// Looks at an inode. Returns whether it can be logged. `is_member` says that a log has it.
    fn visit(&mut self, id: InodeId, with_names: bool, is_member: bool) -> Changed<bool> {
        let is_done = |names: &Option<NameChanges>| !with_names || names.is_some();
        if self.plan.inodes.get(&id).is_some_and(is_done) {
            return Ok(true);
        }
        if !self.open(id.subvolume)? {
            return Ok(false);
        }
        let (now, then) = (self.inode_now(id)?, self.inode_then(id)?);
        if now.is_none() {
            // fsync promises nothing of an inode without a name, unless a log has it with one.
            self.plan.gone.insert(id);
            let logged = self.logged_names(id)?;
            return Ok((!is_member || then.is_none()) && self.visit_heirs(id, &logged)?);
        }
        if then.is_some_and(|(item, _)| item.nlink.get() == 0) {
            return Ok(false);
        }
        let trees = &self.plan.trees[&id.subvolume];
        let names_now = names(&TreeView::Live(trees.live.clone()), id.number)?;
        let names_then = names(&TreeView::Committed(trees.committed.clone()), id.number)?;
        if !names_then.keys().all(|key| names_now.contains_key(key)) {
            return Ok(false);
        }
        let changes =
            if with_names { self.name_changes(id)? } else { Some(NameChanges::default()) };
        let Some(changes) = changes else { return Ok(false) };
        self.plan.inodes.insert(id, with_names.then_some(changes));
        let is_held = |old: &&Name| {
            names_now.values().flatten().any(|name| (name.0, &name.2) == (old.0, &old.2))
        };
        let logged = self.logged_names(id)?;
        let lost = names_then.values().flatten().chain(&logged).filter(|old| !is_held(old));
        if !self.visit_heirs(id, lost)? {
            return Ok(false);
        }
        let known: BTreeSet<&Name> = names_then.values().flatten().collect();
        for name in names_now.values().flatten().filter(|name| !known.contains(name)) {
            if !self.visit_name(id, name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks at a name that an inode got since the last commit.
    fn visit_name(&mut self, id: InodeId, (directory, _, name): &Name) -> Changed<bool> {
        let parent = InodeId { number: *directory, ..id };
        self.plan.named_in.insert(parent);
        if parent.number != id.number && self.inode_then(parent)?.is_none() {
            self.pending.push((parent, false));
            return Ok(true);
        }
        let committed = self.plan.trees[&id.subvolume].committed.clone();
        match entry(&TreeView::Committed(committed), parent, name)? {
            Some(location) if location.item_type != ItemType::INODE_ITEM => Ok(false),
            Some(location) if location.objectid != id.number => {
                self.visit_displaced(InodeId { number: location.objectid, ..id })
            }
            _ => Ok(true),
        }
    }

    /// The names that an inode has in a log.
    fn logged_names(&self, id: InodeId) -> Changed<Vec<Name>> {
        let Some(log) = self.logs.log(id.subvolume) else { return Ok(Vec::new()) };
        let names = names(&TreeView::Live(log.clone()), id.number)?;
        Ok(names.into_values().flatten().collect())
    }

    /// Looks at the inodes that now have names which the plan takes from an inode: the names were
    /// never free.
    fn visit_heirs<'n>(
        &mut self,
        id: InodeId,
        lost: impl IntoIterator<Item = &'n Name>,
    ) -> Changed<bool> {
        for (directory, _, name) in lost {
            let live = TreeView::Live(self.plan.trees[&id.subvolume].live.clone());
            match entry(&live, InodeId { number: *directory, ..id }, name)? {
                Some(location) if location.item_type != ItemType::INODE_ITEM => return Ok(false),
                Some(location) => {
                    self.pending.push((InodeId { number: location.objectid, ..id }, false));
                }
                None => {}
            }
        }
        Ok(true)
    }

    /// Looks at an inode that loses a name of the last commit by this plan.
    fn visit_displaced(&mut self, id: InodeId) -> Changed<bool> {
        if self.inode_now(id)?.is_some() {
            self.pending.push((id, false));
            return Ok(true);
        }
        let was_empty = |(item, file_type): (InodeItem, FileType)| {
            file_type != FileType::Directory || item.size.get() == 0
        };
        Ok(self.inode_then(id)?.is_none_or(was_empty))
    }

    /// The changes of the names in a directory. `None` if they cannot be logged.
    fn name_changes(&mut self, id: InodeId) -> Changed<Option<NameChanges>> {
        let trees = &self.plan.trees[&id.subvolume];
        let mut changes = NameChanges::default();
        let mut inodes = Vec::new();
        let (mut is_plain, most_names) = (true, self.most_names);
        let key = |index| Key::new(id.number, ItemType::DIR_INDEX, index);
        differences(&trees.live, &trees.committed, key(0)..=key(u64::MAX), |difference| {
            let (key, data) = match difference {
                Difference::Now(key, data) => {
                    changes.came.push((key.offset, data.to_vec()));
                    (key, data)
                }
                Difference::Then(key, data) => {
                    changes.went.push(key.offset);
                    (key, data)
                }
            };
            let is_now = matches!(difference, Difference::Now(..));
            for entry in DirEntries::new(data) {
                let entry = entry.map_err(|problem| bad(id, key, problem))?;
                let location = entry.header.location.get();
                is_plain &= location.item_type == ItemType::INODE_ITEM;
                inodes.push((location.objectid, is_now));
            }
            let is_enough = !is_plain || inodes.len() > most_names;
            Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if !is_plain || inodes.len() > most_names {
            return Ok(None);
        }
        for (number, is_now) in inodes {
            let inode = InodeId { number, ..id };
            if is_now {
                self.pending.push((inode, false));
            } else if !self.visit_displaced(inode)? {
                return Ok(None);
            }
        }
        Ok(Some(changes))
    }

    /// Finds the trees of a subvolume. It has none if it is being deleted.
    fn open(&mut self, subvolume: u64) -> Changed<bool> {
        if self.plan.trees.contains_key(&subvolume) {
            return Ok(true);
        }
        let live = self.writer.manager.trees().open(subvolume)?;
        let item = self.writer.manager.trees().root_item(subvolume);
        let committed = self.logs.committed(subvolume)?;
        let (Some(live), Some(committed)) = (live, committed) else { return Ok(false) };
        if item.is_none_or(|(_, item)| item.refs.get() == 0) {
            return Ok(false);
        }
        self.plan.trees.insert(subvolume, Trees { live, committed });
        Ok(true)
    }

    /// The current state of an inode, if it has a name. Its queued items are in the tree then.
    fn inode_now(&self, id: InodeId) -> Changed<Option<(InodeItem, FileType)>> {
        if let Some(live) = self.writer.inodes.known(id) {
            // Otherwise half of it could be in the tree.
            let abort =
                |error: &larder_transaction::Error| self.writer.manager.abort(error.clone());
            live.flush_delayed().inspect_err(abort)?;
        }
        let live = &self.plan.trees[&id.subvolume].live;
        let key = Key::new(id.number, ItemType::INODE_ITEM, 0);
        let found = live.get(key)?.map(|data| parse(id, key, &data)).transpose()?;
        Ok(found.filter(|(item, _)| item.nlink.get() > 0))
    }

    /// An inode as the last commit has it.
    fn inode_then(&self, id: InodeId) -> Changed<Option<(InodeItem, FileType)>> {
        let committed = &self.plan.trees[&id.subvolume].committed;
        let key = Key::new(id.number, ItemType::INODE_ITEM, 0);
        committed.get(key)?.map(|data| parse(id, key, &data)).transpose()
    }
}

/// The inode of a name.
fn entry(tree: &TreeView, directory: InodeId, name: &[u8]) -> Changed<Option<Key>> {
    let key = Key::new(directory.number, ItemType::DIR_ITEM, name_hash::dir_name(name));
    let Some(data) = tree.get(key)? else { return Ok(None) };
    for entry in DirEntries::new(&data) {
        let entry = entry.map_err(|problem| bad(directory, key, problem))?;
        if entry.name == name {
            return Ok(Some(entry.header.location.get()));
        }
    }
    Ok(None)
}

/// The names of an inode by the keys of the references that hold them. The root of a subvolume has
/// none.
fn names(tree: &TreeView, number: u64) -> Changed<BTreeMap<Key, Vec<Name>>> {
    let mut names = BTreeMap::new();
    if number == FIRST_FREE {
        return Ok(names);
    }
    let first = Key::new(number, ItemType::INODE_REF, 0);
    let last = Key::new(number, ItemType::INODE_EXTREF, u64::MAX);
    let mut items = tree.range(first..=last, larder_btree::Readahead::None);
    while let Some((key, data)) = items.next_item()? {
        let mut found = Vec::new();
        links_of_item(key, data, |directory, index, name| {
            found.push((directory, index, name.to_vec()));
        })
        .map_err(|problem| bad(InodeId { subvolume: 0, number }, key, problem))?;
        names.insert(key, found);
    }
    Ok(names)
}

fn parse(id: InodeId, key: Key, data: &[u8]) -> Changed<(InodeItem, FileType)> {
    let item: &InodeItem = read_exact_item(data).map_err(|problem| bad(id, key, problem))?;
    let file_type = FileType::from_mode(item.mode.get()).unwrap_or(FileType::Unknown);
    Ok((*item, file_type))
}

pub(crate) fn bad(
    id: InodeId,
    key: Key,
    problem: larder_format::FormatError,
) -> larder_transaction::Error {
    larder_transaction::Error::Item { tree: id.subvolume, key, problem }
}
