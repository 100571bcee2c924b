//! From findings to a draft: by the typed evidence and the place of each.

use std::collections::{BTreeMap, BTreeSet};

use larder_check::evidence::{Evidence, InodeEvidence, ItemEvidence, QuotaEvidence};
use larder_check::{Finding, Kind, Report};
use larder_format::feature::IncompatFlags;
use larder_format::item::{
    DevItem, QgroupInfoItem, RootItem, RootRef, uuid_key,
};
use larder_format::objectid::{
    CHUNK_TREE, CSUM_TREE, DEV_ITEMS, DEV_TREE, EXTENT_TREE, FREE_SPACE_TREE, FS_TREE, QUOTA_TREE,
    ROOT_TREE, UUID_TREE, is_file_tree, is_subvolume,
};
use larder_format::{ItemType, Key, Uuid};
use larder_volume::Volume;
use zerocopy::{FromBytes, IntoBytes};

use super::block::Blocks;
use super::commit::{Draft, State, each_item};
use super::plan::Action;
use super::{RepairError, Wishes, checksums, copies, files};

/// What is known while a draft is made.
struct Drafting<'a> {
    volume: &'a Volume,
    blocks: Blocks<'a>,
    state: State,
    draft: Draft,
}

/// The draft that answers the findings, and the wishes of the caller.
pub(super) fn draft(volume: &Volume, report: &Report, wishes: &Wishes) -> Draft {
    let blocks = Blocks::new(volume, Default::default());
    let state = State::read(&blocks);
    let mut drafting = Drafting { volume, blocks, state, draft: Draft::default() };
    drafting.draft.drops_log = wishes.zero_log;
    let mut actions: BTreeSet<Action> = BTreeSet::new();
    let mut of_files: BTreeSet<u64> = BTreeSet::new();
    for group in &report.kinds {
        let action = Action::of(group.kind);
        actions.insert(action);
        for finding in &group.findings {
            drafting.note(finding, group.kind, &mut of_files);
        }
    }
    if wishes.clear_uuid_tree {
        actions.insert(Action::Uuids);
    }
    if wishes.fix_device_size {
        actions.insert(Action::Devices);
    }
    if actions.contains(&Action::Roots) {
        drafting.roots();
        of_files.extend(drafting.subvolumes());
    }
    if actions.contains(&Action::Devices) || of_files.contains(&DEV_TREE) {
        drafting.devices();
    }
    if actions.contains(&Action::Uuids) || of_files.contains(&UUID_TREE) {
        drafting.uuids();
    }
    if actions.contains(&Action::Log) {
        drafting.draft.drops_log = true;
    }
    drafting.copies(report);
    if actions.contains(&Action::Blocks) {
        // A lost leaf leaves names and inodes that do not relate.
        let walked = drafting.draft.walked.clone();
        if walked.iter().any(|tree| is_file_tree(*tree)) {
            of_files.extend(drafting.subvolumes());
        }
    }
    drafting.files(&of_files);
    if actions.contains(&Action::Checksums) || wishes.init_csum_tree || of_files.contains(&CSUM_TREE) {
        let all = wishes.init_csum_tree;
        checksums::mend(volume, &drafting.blocks, &drafting.state, all, &mut drafting.draft);
    }
    let Drafting { mut draft, blocks, .. } = drafting;
    draft.notes.extend(blocks.notes.take());
    draft
}

impl Drafting<'_> {
    fn edit(&mut self, tree: u64, key: Key, data: Option<Vec<u8>>) {
        self.draft.edits.entry(tree).or_default().insert(key, data);
    }

    fn subvolumes(&self) -> Vec<u64> {
        let trees = self.state.trees().into_iter();
        trees.filter(|it| is_subvolume(it.id) && it.dropped.is_none()).map(|it| it.id).collect()
    }

    /// Takes a finding into account.
    fn note(&mut self, finding: &Finding, kind: Kind, of_files: &mut BTreeSet<u64>) {
        let location = finding.location;
        let tree = location.tree.unwrap_or(0);
        match Action::of(kind) {
            Action::Blocks => {
                self.draft.suspects.extend(location.logical);
                self.draft.walked.insert(tree);
                if is_file_tree(tree) {
                    self.draft.walked.insert(FS_TREE);
                }
                if [DEV_TREE, UUID_TREE].contains(&tree) {
                    of_files.insert(tree);
                }
            }
            Action::Files => {
                of_files.insert(tree);
                self.item(finding, tree);
            }
            Action::Quotas => self.quota(finding),
            Action::Devices => self.device(finding),
            _ => {}
        }
    }

    /// Removes items that belong nowhere, where nothing else mends their tree.
    fn item(&mut self, finding: &Finding, tree: u64) {
        let Some(key) = finding.location.key else { return };
        let is_removed = match &finding.evidence {
            Evidence::Item(ItemEvidence::Unexpected { .. }) => true,
            Evidence::Item(ItemEvidence::UnexpectedOfFiles { .. }) => true,
            Evidence::Item(
                ItemEvidence::Format { .. } | ItemEvidence::Len { .. } | ItemEvidence::Empty,
            ) => {
                let of_names = [ItemType::INODE_ITEM, ItemType::INODE_REF, ItemType::INODE_EXTREF];
                let of_entries = [ItemType::DIR_ITEM, ItemType::DIR_INDEX, ItemType::ROOT_ITEM];
                let is_mended = of_names.contains(&key.item_type)
                    || of_entries.contains(&key.item_type)
                    || key.item_type == ItemType::EXTENT_DATA;
                !is_mended
            }
            Evidence::Item(_) => {
                let kept = [ItemType::INODE_ITEM, ItemType::EXTENT_DATA, ItemType::ROOT_ITEM];
                !is_file_tree(tree) && !kept.contains(&key.item_type)
            }
            Evidence::Inode(InodeEvidence::ExtentsOfNoFile) => false,
            _ => false,
        };
        let is_rebuilt = [EXTENT_TREE, DEV_TREE, FREE_SPACE_TREE, UUID_TREE].contains(&tree);
        if is_removed && !is_rebuilt {
            self.edit(tree, key, None);
        }
    }

    fn quota(&mut self, finding: &Finding) {
        let Evidence::Quota(evidence) = &finding.evidence else { return };
        if let QuotaEvidence::Counts { group, expected_bytes, expected_exclusive, .. } = evidence {
            let key = Key::new(0, ItemType::QGROUP_INFO, group.0);
            let Some(root) = self.state.root(QUOTA_TREE) else { return };
            let mut found = None;
            each_item(&self.blocks, QUOTA_TREE, root, &mut |at, data| {
                if at == key {
                    found = QgroupInfoItem::read_from_bytes(data).ok();
                }
            });
            let Some(mut item) = found else { return };
            item.rfer = (*expected_bytes).into();
            item.excl = (*expected_exclusive).into();
            item.rfer_cmpr = item.rfer;
            item.excl_cmpr = item.excl;
            self.edit(QUOTA_TREE, key, Some(item.as_bytes().to_vec()));
        }
    }

    fn device(&mut self, _finding: &Finding) {
        self.draft.walked.insert(DEV_TREE);
    }

    /// The device tree from the chunks; what devices use from that; and lengths that devices have.
    fn devices(&mut self) {
        let mut items: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        let mut uuid = None;
        if let Some(root) = self.state.root(DEV_TREE) {
            each_item(&self.blocks, DEV_TREE, root, &mut |key, data| {
                let kept = [ItemType::PERSISTENT_ITEM, ItemType::DEV_REPLACE];
                if kept.contains(&key.item_type) {
                    items.insert(key, data.to_vec());
                } else if let Ok(extent) = larder_format::item::DevExtent::read_from_bytes(data) {
                    uuid.get_or_insert(extent.chunk_tree_uuid);
                }
            });
        }
        let uuid = Uuid::from_bytes(uuid.unwrap_or_default());
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        for chunk in self.volume.chunks().iter() {
            for (key, extent) in chunk.device_extents(uuid) {
                let len_bytes = extent.length.get();
                *used.entry(key.objectid).or_default() += len_bytes;
                let end = ends.entry(key.objectid).or_default();
                *end = (*end).max(key.offset.saturating_add(len_bytes));
                items.insert(key, extent.as_bytes().to_vec());
            }
        }
        self.draft.whole.insert(DEV_TREE, items.into_iter().collect());
        let mut listed = Vec::new();
        each_item(&self.blocks, CHUNK_TREE, self.state.chunk_tree, &mut |key, data| {
            if key.objectid == DEV_ITEMS && key.item_type == ItemType::DEV_ITEM {
                listed.extend(DevItem::read_from_bytes(data).ok());
            }
        });
        let fsid = self.volume.superblock().metadata_uuid().into_bytes();
        for old in listed {
            let mut item = old;
            let devid = item.devid.get();
            item.bytes_used = used.get(&devid).copied().unwrap_or(0).into();
            let device = self.volume.device(devid);
            if device.as_ref().is_some_and(|device| !device.is_seed()) {
                item.fsid = fsid;
            }
            let real = device.as_ref().and_then(|device| device.device().cloned());
            if let Some(real) = real {
                let most = real.len_bytes() / u64::from(self.volume.sectorsize())
                    * u64::from(self.volume.sectorsize());
                let least = ends.get(&devid).copied().unwrap_or(0);
                if most < item.total_bytes.get() && most >= least {
                    item.total_bytes = most.into();
                }
            }
            if item != old {
                let key = Key::new(DEV_ITEMS, ItemType::DEV_ITEM, devid);
                self.edit(CHUNK_TREE, key, Some(item.as_bytes().to_vec()));
            }
            if let Some(device) = device {
                device.change_dev_item(|kept| *kept = item);
            }
        }
    }

    fn uuids(&mut self) {
        let mut ids: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
        for (key, data) in &self.state.root_items {
            let is_subvolume = key.item_type == ItemType::ROOT_ITEM && is_subvolume(key.objectid);
            let Some(item) = RootItem::parse(data).ok().filter(|_| is_subvolume) else { continue };
            if item.refs.get() == 0 {
                continue;
            }
            let uuids = [
                (item.uuid(), ItemType::UUID_KEY_SUBVOL),
                (item.received_uuid(), ItemType::UUID_KEY_RECEIVED_SUBVOL),
            ];
            for (uuid, kind) in uuids.into_iter().filter(|(uuid, _)| !uuid.is_nil()) {
                ids.entry(uuid_key(uuid, kind)).or_default().push(key.objectid);
            }
        }
        let data = |ids: Vec<u64>| ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let items = ids.into_iter().map(|(key, ids)| (key, data(ids))).collect();
        self.draft.whole.insert(UUID_TREE, items);
        self.draft.has_new_uuid_tree = true;
    }

    /// Root items and references of subvolumes.
    fn roots(&mut self) {
        let latest = self.volume.superblock().generation.get();
        let items = self.state.root_items.clone();
        let mut refs: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        for (key, data) in &items {
            match key.item_type {
                ItemType::ROOT_ITEM => {
                    if let Some(mended) = mended_root(*key, data, latest) {
                        self.edit(ROOT_TREE, *key, Some(mended));
                    }
                }
                ItemType::ROOT_REF => {
                    refs.insert((key.objectid, key.offset), data.clone());
                }
                ItemType::ROOT_BACKREF => {
                    refs.entry((key.offset, key.objectid)).or_insert_with(|| data.clone());
                }
                _ => {}
            }
        }
        self.references(refs);
    }

    /// Makes references and back references of subvolumes agree with the entries of directories.
    fn references(&mut self, refs: BTreeMap<(u64, u64), Vec<u8>>) {
        let live: BTreeSet<u64> = self.subvolumes().into_iter().collect();
        let mut entries: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        for tree in self.state.trees().iter().filter(|tree| live.contains(&tree.id)) {
            each_item(&self.blocks, tree.id, tree.root, &mut |key, data| {
                if key.item_type != ItemType::DIR_INDEX {
                    return;
                }
                let found = larder_format::item::DirEntries::new(data).flatten().next();
                let Some(entry) = found else { return };
                let target = entry.header.location.get();
                if target.item_type == ItemType::ROOT_ITEM && live.contains(&target.objectid) {
                    let (dirid, sequence, name) = (key.objectid, key.offset, entry.name);
                    let mut written = Vec::new();
                    RootRef { dirid, sequence, name }.write(&mut written);
                    let known = entries.entry((tree.id, target.objectid)).or_default();
                    if known.is_empty() || refs.get(&(tree.id, target.objectid)) == Some(&written) {
                        *known = written;
                    }
                }
            });
        }
        let named: BTreeSet<u64> = refs
            .keys()
            .filter(|it| entries.contains_key(it))
            .map(|(_, child)| *child)
            .collect();
        let mut wanted: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        for (names, written) in entries {
            // A snapshot has the entries of its source, which name nothing there.
            if refs.contains_key(&names) || !named.contains(&names.1) {
                wanted.insert(names, written);
            }
        }
        let is_ref = |key: &&Key| {
            [ItemType::ROOT_REF, ItemType::ROOT_BACKREF].contains(&key.item_type)
        };
        let old: Vec<Key> = self.state.root_items.keys().filter(is_ref).copied().collect();
        for key in old {
            self.edit(ROOT_TREE, key, None);
        }
        for ((parent, child), data) in wanted {
            self.edit(ROOT_TREE, Key::new(parent, ItemType::ROOT_REF, child), Some(data.clone()));
            self.edit(ROOT_TREE, Key::new(child, ItemType::ROOT_BACKREF, parent), Some(data));
        }
    }

    fn files(&mut self, of: &BTreeSet<u64>) {
        let superblock = self.volume.superblock();
        let known = files::Known {
            generation: superblock.generation.get(),
            sectorsize: u64::from(self.volume.sectorsize()),
            nodesize: self.blocks.nodesize(),
            has_no_holes: superblock.has_incompat(IncompatFlags::NO_HOLES),
        };
        // What is wrong in a block that several subvolumes share is found in one of them.
        let is_any = of.iter().any(|tree| is_subvolume(*tree));
        for tree in self.state.trees() {
            if is_any && is_subvolume(tree.id) && tree.dropped.is_none() {
                let (edits, notes) = files::mend(&self.blocks, tree.id, tree.root, known);
                let own = self.draft.edits.entry(tree.id).or_default();
                own.extend(edits);
                self.draft.notes.extend(notes);
            }
        }
    }

    /// Writes good copies over bad ones.
    fn copies(&mut self, report: &Report) {
        let mut sectors = BTreeSet::new();
        for group in &report.kinds {
            for logical in group.findings.iter().filter_map(|it| it.location.logical) {
                let mended = match group.kind {
                    Kind::BlockCopyBad => copies::block(self.volume, logical),
                    Kind::Parity => copies::parity(self.volume, logical),
                    Kind::DataCopyBad => {
                        sectors.insert(logical);
                        Ok(())
                    }
                    _ => continue,
                };
                self.note_failure(mended);
            }
        }
        let mended = copies::data(self.volume, &self.blocks, &self.state, &sectors);
        self.note_failure(mended);
    }

    fn note_failure(&mut self, done: Result<(), RepairError>) {
        if let Err(error) = done {
            self.draft.notes.push(format!("a copy stays bad: {error}"));
        }
    }
}

/// A root item with its fields set right; `None` if they are.
fn mended_root(key: Key, data: &[u8], latest: u64) -> Option<Vec<u8>> {
    let mut item = RootItem::parse(data).ok()?;
    let old = item;
    item.flags = (item.flags.get()
        & (larder_format::item::ROOT_SUBVOL_RDONLY | larder_format::item::ROOT_SUBVOL_DEAD))
        .into();
    item.refs = item.refs.get().min(1).into();
    item.generation = item.generation.get().min(latest).into();
    if old.generation_v2 == old.generation {
        item.generation_v2 = item.generation;
    }
    item.last_snapshot = item.last_snapshot.get().min(latest).into();
    if is_subvolume(key.objectid) {
        item.root_dirid = larder_format::objectid::FIRST_FREE.into();
        if item.refs.get() > 0 {
            item.drop_progress = Key::MIN.into();
            item.drop_level = 0;
        }
    }
    (item != old).then(|| item.as_bytes()[..data.len().min(size_of::<RootItem>())].to_vec())
}
