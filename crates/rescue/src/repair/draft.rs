//! From findings to a draft: by the typed evidence and the place of each.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_check::evidence::{ChecksumEvidence, Evidence, ItemEvidence, QuotaEvidence};
use larder_check::{Finding, Kind, Report};
use larder_format::feature::IncompatFlags;
use larder_format::item::{
    ChunkHeader, DevItem, DirItemHeader, InodeFlags, InodeItem, QgroupInfoItem, QgroupLimitItem,
    ROOT_SUBVOL_DEAD, ROOT_SUBVOL_RDONLY, RootItem, RootRef, uuid_key,
};
use larder_format::node::{ITEM_HEADER_SIZE, leaf_data_size};
use larder_format::objectid::{
    CHUNK_TREE, CSUM_TREE, DATA_RELOC_TREE, DEV_ITEMS, DEV_TREE, EXTENT_TREE, FIRST_FREE,
    FREE_SPACE_TREE, FS_TREE, ORPHAN, QUOTA_TREE, ROOT_TREE, ROOT_TREE_DIR, UUID_TREE,
    is_file_tree, is_subvolume,
};
use larder_format::{ItemType, Key, Uuid};
use larder_volume::Volume;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::bits::{self, Turned};
use super::block::Blocks;
use super::commit::{Draft, State, chunk_tree_uuid, each_item};
use super::error::RepairError;
use super::extents::Doubts;
use super::plan::Action;
use super::wishes::Wishes;
use super::{checksums, copies, files};

/// What is known while a draft is made.
pub(super) struct Drafting<'a> {
    volume: &'a Volume,
    pub(super) blocks: Blocks<'a>,
    pub(super) state: State,
    pub(super) draft: Draft,
    /// Subvolumes in use that no directory names.
    homeless: Vec<u64>,
}

/// The draft that answers the findings, and the wishes of the caller. `is_first` says that no other
/// draft was carried out before.
pub(super) fn draft(volume: &Volume, report: &Report, wishes: &Wishes, is_first: bool) -> Draft {
    let mut drafting = Drafting::new(volume);
    drafting.draft.drops_log = wishes.zero_log;
    let mut actions: BTreeSet<Action> = BTreeSet::new();
    let mut of_files: BTreeSet<u64> = BTreeSet::new();
    for group in report.kinds.iter().filter(|it| wishes.answers(it.kind)) {
        let action = Action::of(group.kind);
        actions.insert(action);
        for finding in &group.findings {
            drafting.note(finding, group.kind, is_first, &mut of_files);
        }
    }
    if wishes.clear_uuid_tree {
        actions.insert(Action::Uuids);
    }
    if wishes.fix_device_size {
        actions.insert(Action::Devices);
    }
    drafting.roots();
    // Entries of directories are mended first: subvolumes are named by them.
    let has_entries = !is_first || !actions.contains(&Action::Files);
    if actions.contains(&Action::Roots) && has_entries {
        drafting.names_of_subvolumes();
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
    if is_first {
        drafting.attributes(report);
        drafting.extents(report);
    }
    if actions.contains(&Action::Blocks) {
        // A lost leaf leaves names and inodes that do not relate.
        let walked = drafting.draft.walked.clone();
        if walked.iter().any(|tree| is_file_tree(*tree)) {
            of_files.extend(drafting.subvolumes());
        }
    }
    drafting.files(&of_files);
    let has_checksums = drafting.state.root(CSUM_TREE).is_some();
    let of_sums = [Action::Checksums, Action::Data];
    if of_sums.iter().any(|action| actions.contains(action))
        || wishes.init_csum_tree
        || of_files.contains(&CSUM_TREE)
        || !drafting.draft.fresh_checksums.is_empty()
        || !has_checksums
    {
        let all = wishes.init_csum_tree;
        checksums::mend(volume, &drafting.blocks, &drafting.state, all, &mut drafting.draft);
    }
    let Drafting { mut draft, blocks, .. } = drafting;
    draft.notes.extend(blocks.notes.take());
    draft
}

impl<'a> Drafting<'a> {
    pub(super) fn new(volume: &'a Volume) -> Self {
        let blocks = Blocks::new(volume, HashSet::new());
        let state = State::read(&blocks);
        Self { volume, blocks, state, draft: Draft::default(), homeless: Vec::new() }
    }
}

impl Drafting<'_> {
    /// Whether a tree is there, with all of its blocks.
    pub(super) fn is_whole(&self, tree: u64) -> bool {
        let root = self.state.root(tree);
        root.is_some_and(|root| each_item(&self.blocks, tree, root, &mut |_, _| ()))
    }

    pub(super) fn edit(&mut self, tree: u64, key: Key, data: Option<Vec<u8>>) {
        self.draft.edits.entry(tree).or_default().insert(key, data);
    }

    fn subvolumes(&self) -> Vec<u64> {
        let trees = self.state.trees().into_iter();
        trees.filter(|it| is_subvolume(it.id) && it.dropped.is_none()).map(|it| it.id).collect()
    }

    /// Takes a finding into account.
    fn note(
        &mut self,
        finding: &Finding,
        kind: Kind,
        is_first: bool,
        of_files: &mut BTreeSet<u64>,
    ) {
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
            Action::Data => self.draft.fresh_checksums.extend(location.logical),
            Action::Quotas => self.quota(finding),
            Action::Checksums => self.checksums(finding, is_first),
            _ => {}
        }
    }

    /// Removes items that belong nowhere, where nothing else mends their tree.
    fn item(&mut self, finding: &Finding, tree: u64) {
        let Some(key) = finding.location.key else { return };
        let is_removed = match &finding.evidence {
            Evidence::Item(
                ItemEvidence::Unexpected { .. } | ItemEvidence::UnexpectedOfFiles { .. },
            ) => true,
            Evidence::Item(
                ItemEvidence::Format { .. } | ItemEvidence::Len { .. } | ItemEvidence::Empty,
            ) => {
                let mended = [
                    ItemType::INODE_ITEM,
                    ItemType::INODE_REF,
                    ItemType::INODE_EXTREF,
                    ItemType::DIR_ITEM,
                    ItemType::DIR_INDEX,
                    ItemType::EXTENT_DATA,
                ];
                let is_mended = is_file_tree(tree) && mended.contains(&key.item_type);
                !is_mended && key.item_type != ItemType::ROOT_ITEM
            }
            Evidence::Item(_) => {
                let kept = [ItemType::INODE_ITEM, ItemType::EXTENT_DATA, ItemType::ROOT_ITEM];
                !is_file_tree(tree) && !kept.contains(&key.item_type)
            }
            _ => false,
        };
        let is_rebuilt = [EXTENT_TREE, DEV_TREE, FREE_SPACE_TREE, UUID_TREE].contains(&tree);
        if is_removed && !is_rebuilt {
            self.edit(tree, key, None);
        }
    }

    fn quota(&mut self, finding: &Finding) {
        let Evidence::Quota(evidence) = &finding.evidence else { return };
        let relation = |from: u64, to: u64| Key::new(from, ItemType::QGROUP_RELATION, to);
        match *evidence {
            QuotaEvidence::Counts { group, expected_bytes, expected_exclusive, .. } => {
                self.quota_counts(group.0, expected_bytes, expected_exclusive);
            }
            QuotaEvidence::NoLimits { group } => {
                let none = QgroupLimitItem::new_zeroed().as_bytes().to_vec();
                self.edit(QUOTA_TREE, Key::new(0, ItemType::QGROUP_LIMIT, group.0), Some(none));
            }
            QuotaEvidence::NoCounts { group } => {
                let none = QgroupInfoItem::new_zeroed().as_bytes().to_vec();
                self.edit(QUOTA_TREE, Key::new(0, ItemType::QGROUP_INFO, group.0), Some(none));
            }
            QuotaEvidence::MemberOfNone { member, group, .. } => {
                self.edit(QUOTA_TREE, relation(member.0, group.0), None);
                self.edit(QUOTA_TREE, relation(group.0, member.0), None);
            }
            QuotaEvidence::OneLevel { from, to } => {
                self.edit(QUOTA_TREE, relation(from.0, to.0), None);
                self.edit(QUOTA_TREE, relation(to.0, from.0), None);
            }
            QuotaEvidence::RelationNotBack { from, to } => {
                self.edit(QUOTA_TREE, relation(to.0, from.0), Some(Vec::new()));
            }
            QuotaEvidence::Unexpected { .. } => {
                if let Some(key) = finding.location.key {
                    self.edit(QUOTA_TREE, key, None);
                }
            }
            _ => {}
        }
    }

    fn quota_counts(&mut self, group: u64, bytes: u64, exclusive: u64) {
        let key = Key::new(0, ItemType::QGROUP_INFO, group);
        let Some(root) = self.state.root(QUOTA_TREE) else { return };
        let mut found = None;
        each_item(&self.blocks, QUOTA_TREE, root, &mut |at, data| {
            if at == key {
                found = QgroupInfoItem::read_from_bytes(data).ok();
            }
        });
        let Some(mut item) = found else { return };
        (item.rfer, item.rfer_cmpr) = (bytes.into(), bytes.into());
        (item.excl, item.excl_cmpr) = (exclusive.into(), exclusive.into());
        self.edit(QUOTA_TREE, key, Some(item.as_bytes().to_vec()));
    }

    /// Files that must have checksums although they say that they have none: of compressed data, and
    /// of data that another file has checksums of.
    fn checksums(&mut self, finding: &Finding, is_first: bool) {
        let is_wanted = match &finding.evidence {
            Evidence::Checksum(ChecksumEvidence::CompressedWithout { .. }) => true,
            Evidence::Checksum(ChecksumEvidence::OfFileWithout { .. }) => !is_first,
            _ => false,
        };
        let Some(ino) = finding.location.inode.filter(|_| is_wanted) else { return };
        let key = Key::new(ino, ItemType::INODE_ITEM, 0);
        for tree in self.subvolumes() {
            let Some(root) = self.state.root(tree) else { continue };
            let mut item = None;
            each_item(&self.blocks, tree, root, &mut |at, data| {
                if at == key {
                    item = InodeItem::read_from_bytes(data).ok();
                }
            });
            let without = InodeFlags::NODATASUM | InodeFlags::NODATACOW;
            if let Some(mut item) = item.filter(|item| item.flags().intersects(without)) {
                item.flags = item.flags().difference(without).bits().into();
                self.draft.with_checksums.insert((tree, ino));
                self.edit(tree, key, Some(item.as_bytes().to_vec()));
            }
        }
    }

    /// The device tree from the chunks; what devices use from that; and lengths that devices have.
    pub(super) fn devices(&mut self) {
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
        let of_blocks = || chunk_tree_uuid(&self.blocks, &self.state);
        let uuid = Uuid::from_bytes(uuid.unwrap_or_else(of_blocks));
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
        let (mut listed, mut chunks) = (Vec::new(), Vec::new());
        let sectorsize = self.volume.sectorsize();
        each_item(&self.blocks, CHUNK_TREE, self.state.chunk_tree, &mut |key, data| {
            if key.item_type == ItemType::CHUNK_ITEM {
                let mut data = data.to_vec();
                let Ok((header, _)) = ChunkHeader::mut_from_prefix(&mut data) else { return };
                if header.owner.get() != EXTENT_TREE || header.sector_size.get() != sectorsize {
                    header.owner = EXTENT_TREE.into();
                    header.sector_size = sectorsize.into();
                    chunks.push((key, data));
                }
            }
            if key.objectid == DEV_ITEMS && key.item_type == ItemType::DEV_ITEM {
                listed.extend(DevItem::read_from_bytes(data).ok());
            }
        });
        for (key, data) in chunks {
            self.edit(CHUNK_TREE, key, Some(data));
        }
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

    /// Root items, the list of deleted subvolumes, and the default one.
    fn roots(&mut self) {
        let items = self.state.root_items.clone();
        let has_root = |id: u64| {
            items.keys().any(|it| it.objectid == id && it.item_type == ItemType::ROOT_ITEM)
        };
        for (key, data) in &items {
            if key.item_type == ItemType::ROOT_ITEM {
                let mended = self.mended_root(*key, data);
                let is_deleted = RootItem::parse(mended.as_ref().unwrap_or(data))
                    .is_ok_and(|item| item.refs.get() == 0);
                let orphan = Key::new(ORPHAN, ItemType::ORPHAN_ITEM, key.objectid);
                if is_deleted && is_subvolume(key.objectid) && !items.contains_key(&orphan) {
                    self.edit(ROOT_TREE, orphan, Some(Vec::new()));
                }
                if let Some(mended) = mended {
                    // The trees are read by the right roots from now on.
                    self.state.root_items.insert(*key, mended.clone());
                    self.edit(ROOT_TREE, *key, Some(mended));
                    self.draft.walked.insert(key.objectid);
                }
            }
            if key.objectid == ROOT_TREE_DIR && key.item_type == ItemType::DIR_ITEM {
                let mut data = data.clone();
                let Ok((entry, _)) = DirItemHeader::mut_from_prefix(&mut data) else { continue };
                let target = entry.location.get();
                if !has_root(target.objectid) {
                    entry.location = Key { objectid: FS_TREE, ..target }.into();
                    self.edit(ROOT_TREE, *key, Some(data));
                    self.draft.notes.push("the top subvolume is the default one".into());
                }
            }
        }
    }

    /// Where the trees name subvolumes, and where these say that they are named.
    fn names_of_subvolumes(&mut self) {
        self.references(&self.told_references());
    }

    /// The references of subvolumes that either of their two items tells, by parent and child.
    fn told_references(&self) -> BTreeMap<(u64, u64), Vec<u8>> {
        let mut refs: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        for (key, data) in &self.state.root_items {
            match key.item_type {
                ItemType::ROOT_REF => {
                    refs.insert((key.objectid, key.offset), data.clone());
                }
                ItemType::ROOT_BACKREF => {
                    refs.entry((key.offset, key.objectid)).or_insert_with(|| data.clone());
                }
                _ => {}
            }
        }
        refs
    }

    /// Makes references and back references of subvolumes agree with the entries of directories.
    fn references(&mut self, refs: &BTreeMap<(u64, u64), Vec<u8>>) {
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
        let named: BTreeSet<u64> =
            refs.keys().filter(|it| entries.contains_key(it)).map(|(_, child)| *child).collect();
        let mut wanted: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        let mut claimed: BTreeSet<u64> = BTreeSet::new();
        for ((parent, child), written) in entries {
            // A snapshot, whose id is higher, has the entries of its source: they name nothing there.
            let is_told = refs.contains_key(&(parent, child));
            let is_first = !named.contains(&child) && claimed.insert(child);
            if is_told || is_first {
                wanted.insert((parent, child), written);
            } else if !named.contains(&child) {
                self.mark_snapshot(parent);
            }
        }
        let has_name = |child: &u64| wanted.keys().any(|(_, named)| named == child);
        let homeless = live.iter().filter(|it| **it != FS_TREE && self.is_kept(**it));
        self.homeless = homeless.filter(|child| !has_name(child)).copied().collect();
        let is_ref =
            |key: &&Key| [ItemType::ROOT_REF, ItemType::ROOT_BACKREF].contains(&key.item_type);
        let old: Vec<Key> = self.state.root_items.keys().filter(is_ref).copied().collect();
        for key in old {
            self.edit(ROOT_TREE, key, None);
        }
        for ((parent, child), data) in wanted {
            self.edit(ROOT_TREE, Key::new(parent, ItemType::ROOT_REF, child), Some(data.clone()));
            self.edit(ROOT_TREE, Key::new(child, ItemType::ROOT_BACKREF, parent), Some(data));
        }
    }

    /// Makes the root item of a subvolume say that it is a snapshot.
    fn mark_snapshot(&mut self, subvolume: u64) {
        let key = Key::new(subvolume, ItemType::ROOT_ITEM, 0);
        let Some(data) = self.state.root_items.remove(&key) else { return };
        let Ok(item) = RootItem::parse(&data) else { return };
        let made = Key { offset: item.generation.get(), ..key };
        self.state.root_items.insert(made, data.clone());
        self.edit(ROOT_TREE, key, None);
        self.edit(ROOT_TREE, made, Some(data));
    }

    /// Whether a subvolume is not being deleted.
    fn is_kept(&self, subvolume: u64) -> bool {
        let first = Key::new(subvolume, ItemType::ROOT_ITEM, 0);
        let last = Key::new(subvolume, ItemType::ROOT_ITEM, u64::MAX);
        let mut items = self.state.root_items.range(first..=last);
        items.any(|(_, data)| RootItem::parse(data).is_ok_and(|item| item.refs.get() > 0))
    }

    fn files(&mut self, of: &BTreeSet<u64>) {
        let superblock = self.volume.superblock();
        let known = files::Known {
            generation: superblock.generation.get(),
            sectorsize: u64::from(self.volume.sectorsize()),
            has_no_holes: superblock.has_incompat(IncompatFlags::NO_HOLES),
            item_bytes: leaf_data_size(self.blocks.nodesize()) - ITEM_HEADER_SIZE,
        };
        let refs = self.told_references();
        let named: BTreeSet<u64> = refs.keys().map(|(_, child)| *child).collect();
        // What is wrong in a block that several subvolumes share is found in one of them.
        let is_any = of.iter().any(|tree| is_subvolume(*tree));
        for tree in self.state.trees() {
            if is_any && is_subvolume(tree.id) && tree.dropped.is_none() {
                let items = &self.state.root_items;
                let listed = items.keys().filter(|it| it.item_type == ItemType::ROOT_ITEM);
                let listed = listed.map(|it| it.objectid);
                let may_name =
                    |child: &u64| refs.contains_key(&(tree.id, *child)) || !named.contains(child);
                let listed = listed.filter(may_name).collect();
                let original = Key::new(tree.id, ItemType::ROOT_ITEM, 0);
                let is_snapshot = !items.contains_key(&original);
                let (blocks, root) = (&self.blocks, tree.root);
                let homeless = if tree.id == FS_TREE {
                    std::mem::take(&mut self.homeless)
                } else {
                    Vec::new()
                };
                let subvolumes = files::Subvolumes { listed, homeless, is_snapshot };
                let (edits, notes) = files::mend(blocks, tree.id, root, subvolumes, known);
                let own = self.draft.edits.entry(tree.id).or_default();
                own.extend(edits);
                self.draft.notes.extend(notes);
            }
        }
    }

    /// Writes good copies over bad ones.
    fn copies(&mut self, report: &Report) {
        let (mut sectors, mut unmatched) = (BTreeSet::new(), BTreeSet::new());
        for group in &report.kinds {
            for logical in group.findings.iter().filter_map(|it| it.location.logical) {
                let mended = match group.kind {
                    Kind::BlockCopyBad => copies::block(self.volume, logical),
                    Kind::Parity => copies::parity(self.volume, logical),
                    Kind::DataCopyBad => {
                        sectors.insert(logical);
                        Ok(())
                    }
                    Kind::DataChecksum => {
                        unmatched.insert(logical);
                        Ok(())
                    }
                    _ => continue,
                };
                self.note_failure(mended);
            }
        }
        let mended = copies::data(self.volume, &self.blocks, &self.state, &sectors);
        self.note_failure(mended);
        self.bits(&unmatched);
    }

    /// Turns back single bits of the names of extended attributes.
    fn attributes(&mut self, report: &Report) {
        let groups = report.kinds.iter().filter(|group| group.kind == Kind::NameHash);
        let keys = groups.flat_map(|it| &it.findings).filter_map(|it| it.location.key);
        let keys: BTreeSet<Key> =
            keys.filter(|key| key.item_type == ItemType::XATTR_ITEM).collect();
        for tree in if keys.is_empty() { Vec::new() } else { self.subvolumes() } {
            let Some(root) = self.state.root(tree) else { continue };
            let mut turned = Vec::new();
            each_item(&self.blocks, tree, root, &mut |key, data| {
                if keys.contains(&key) {
                    turned.extend(bits::attribute(key, data).map(|right| (key, right)));
                }
            });
            for (wrong, (key, data)) in turned {
                let note = format!("subvolume {tree}: one bit of {wrong} is turned back");
                self.draft.notes.push(note);
                self.draft.set_right.insert((tree, wrong));
                self.edit(tree, wrong, None);
                self.edit(tree, key, Some(data));
            }
        }
    }

    /// Sets fields of file extents right that say something impossible.
    fn extents(&mut self, report: &Report) {
        let Some(doubts) = Doubts::of(report, &self.blocks, &self.state) else { return };
        for tree in self.subvolumes() {
            for (key, data) in doubts.mend(&self.blocks, tree, &self.state) {
                let note = format!("subvolume {tree}: the file extent {key} is set right");
                self.draft.notes.push(note);
                self.draft.set_right.insert((tree, key));
                self.edit(tree, key, data);
            }
        }
    }

    /// Turns back single bits of sectors that match no checksum.
    fn bits(&mut self, sectors: &BTreeSet<u64>) {
        match bits::turn_back(self.volume, &self.blocks, &self.state, sectors) {
            Ok(Turned { data, checksums }) => {
                for sector in &data {
                    self.draft.fresh_checksums.remove(sector);
                    self.draft.notes.push(format!("data at {sector}: one bit is turned back"));
                }
                for sector in checksums {
                    let note = format!("data at {sector}: one bit of its checksum is turned back");
                    self.draft.notes.push(note);
                    self.draft.fresh_checksums.insert(sector);
                }
            }
            Err(error) => self.note_failure(Err(error)),
        }
    }

    fn note_failure(&mut self, done: Result<(), RepairError>) {
        if let Err(error) = done {
            self.draft.notes.push(format!("a copy stays bad: {error}"));
        }
    }

    /// Whether a subvolume names this one: its deletion would have taken that away first.
    fn is_named(&self, subvolume: u64) -> bool {
        let first = Key::new(subvolume, ItemType::ROOT_BACKREF, 0);
        let last = Key::new(subvolume, ItemType::ROOT_BACKREF, u64::MAX);
        self.state.root_items.range(first..=last).next().is_some()
    }

    /// A root item with its fields set right; `None` if they are.
    fn mended_root(&self, key: Key, data: &[u8]) -> Option<Vec<u8>> {
        let latest = self.volume.superblock().generation.get();
        let mut item = RootItem::parse(data).ok()?;
        let old = item;
        item.flags = (item.flags.get() & (ROOT_SUBVOL_RDONLY | ROOT_SUBVOL_DEAD)).into();
        item.refs = item.refs.get().min(1).into();
        if item.drop_progress.get() == Key::MIN && self.is_named(key.objectid) {
            item.refs = 1.into();
        }
        if let Some((level, generation)) = self.blocks.told_by(item.bytenr.get()) {
            item.level = level;
            if item.generation.get() > latest {
                item.generation = generation.into();
            }
        }
        if old.generation_v2 == old.generation {
            item.generation_v2 = item.generation;
        }
        item.last_snapshot = item.last_snapshot.get().min(latest).into();
        if is_subvolume(key.objectid) || key.objectid == DATA_RELOC_TREE {
            item.root_dirid = FIRST_FREE.into();
        }
        if is_subvolume(key.objectid) && item.refs.get() > 0 {
            item.drop_progress = Key::MIN.into();
            item.drop_level = 0;
        }
        (item != old).then(|| item.as_bytes()[..data.len().min(size_of::<RootItem>())].to_vec())
    }
}
