//! A check from start to end.

use larder_format::feature::CompatRoFlags;
use larder_format::objectid;
use larder_volume::Volume;

use crate::Options;
use crate::blocks::{Forest, TreeRoot, for_each_item};
use crate::checksums::{self, ChecksumRanges};
use crate::context::Context;
use crate::evidence::TreeEvidence;
use crate::extents::{self, ExtentTable};
use crate::files::{self, Orphans};
use crate::locate::Locator;
use crate::log::{self, Log, LoggedData};
use crate::progress::{Phase, Stopped};
use crate::quota::{self, QuotaTree};
use crate::report::{Location, Report, Sink, Statistics};
use crate::roots::RootTree;
use crate::space::{self, BlockGroups, ChunkTree, Space};
use crate::subvolumes;
use crate::superblocks;

pub(crate) fn run(volume: &Volume, options: &Options<'_>) -> Result<Report, Stopped> {
    let threads = match options.threads {
        0 => larder_parallel::threads().get(),
        threads => threads,
    };
    let sink = Sink::new(options.kept_per_kind);
    let context = Context::new(volume, sink, threads, options.progress);
    let mut check = Check::new(&context);
    let extents = check.run(options.check_data_csum)?;
    let Check { forest, roots, statistics, .. } = check;
    let fsid = context.superblock.fsid().to_string();
    let (mut kinds, skipped) = context.sink.finish();
    Locator::new(&context, &forest, &roots, &extents).locate(&mut kinds);
    Ok(Report { fsid, kinds, skipped, statistics })
}

struct Check<'c, 'v> {
    context: &'c Context<'v>,
    forest: Forest,
    roots: RootTree,
    logs: Vec<Log>,
    statistics: Statistics,
}

impl<'c, 'v> Check<'c, 'v> {
    fn new(context: &'c Context<'v>) -> Self {
        let (forest, roots) = (Forest::default(), RootTree::default());
        let (logs, statistics) = (Vec::new(), Statistics::default());
        Self { context, forest, roots, logs, statistics }
    }

    /// Checks everything. Returns the extents.
    fn run(&mut self, check_data_csum: bool) -> Result<ExtentTable, Stopped> {
        let context = self.context;
        context.progress.begin(Phase::Trees, 0);
        superblocks::check_copies(context);
        let chunk_root = self.grow_trees();
        context.progress.go_on()?;
        context.progress.begin(Phase::Space, 0);
        let chunks = ChunkTree::read(context, &mut self.forest, &chunk_root);
        superblocks::check_totals(context, &chunks);
        self.check_device_tree(&chunks);
        let (extents, groups) = self.read_extents();
        context.progress.go_on()?;
        let space = Space { chunks: &chunks, groups: &groups, extents: &extents };
        self.check_space(space);
        let checksums = self.read_checksums();
        context.progress.go_on()?;
        let quotas = self
            .tree(objectid::QUOTA_TREE)
            .and_then(|root| QuotaTree::read(context, &mut self.forest, &root));
        if let Some(root) = self.tree(objectid::UUID_TREE) {
            subvolumes::check_uuid_tree(context, &mut self.forest, &root, &self.roots);
        }
        if let Some(root) = self.tree(objectid::RAID_STRIPE_TREE) {
            space::check_stripe_tree(context, &mut self.forest, &root);
        }
        self.read_rest();
        let _ = context.orphans.set(Orphans::read(context, &self.forest));
        self.check_files(&extents, &checksums)?;
        if let Some(quotas) = &quotas {
            quota::check(context, &self.forest, &extents, &self.roots, quotas);
        }
        let logged = log::check_data(context, &self.forest, &self.logs, &extents, &checksums);
        checksums.check_allocated(context, &extents, &logged.new_extents);
        self.count(&extents, &checksums);
        if check_data_csum && context.is_metadata_dump() {
            let what = "the data: it is a metadata dump, which need not hold any";
            context.sink.skip(what.to_owned());
        } else if check_data_csum {
            self.check_data(&extents, &checksums, &logged);
        }
        context.progress.go_on()?;
        superblocks::check_devices_behind(context);
        Ok(extents)
    }

    /// Plants all trees; returns the chunk tree's root.
    fn grow_trees(&mut self) -> TreeRoot {
        let (context, superblock) = (self.context, &self.context.superblock);
        let chunk_root = self.forest.plant(
            objectid::CHUNK_TREE,
            superblock.chunk_root().0,
            superblock.chunk_root_generation.get(),
            superblock.chunk_root_level,
        );
        let root = self.forest.plant(
            objectid::ROOT_TREE,
            superblock.root().0,
            superblock.generation.get(),
            superblock.root_level,
        );
        self.forest.grow(context);
        self.roots = RootTree::read(context, &mut self.forest, &root);
        self.roots.plant(context, &mut self.forest);
        self.logs = log::plant(context, &mut self.forest);
        if !self.roots.is_whole {
            context.find(Location::tree(objectid::ROOT_TREE), TreeEvidence::UnknownTrees);
        }
        chunk_root
    }

    fn tree(&self, id: u64) -> Option<TreeRoot> {
        self.forest.roots().iter().find(|root| root.tree == id).copied()
    }

    /// A tree that the check cannot do without; reports its absence.
    fn needed_tree(&self, id: u64) -> Option<TreeRoot> {
        let root = self.tree(id);
        if root.is_none() && self.roots.is_whole {
            self.context.find(Location::tree(id), TreeEvidence::NotListed);
        }
        root
    }

    fn check_device_tree(&mut self, chunks: &ChunkTree) {
        let Some(root) = self.needed_tree(objectid::DEV_TREE) else { return };
        let extents = space::read_device_tree(self.context, &mut self.forest, &root);
        if let Some(extents) = extents.filter(|_| chunks.is_whole) {
            space::check_device_extents(self.context, chunks, &extents);
        }
    }

    /// Reads extents and block groups.
    fn read_extents(&mut self) -> (ExtentTable, BlockGroups) {
        let context = self.context;
        let mut groups = BlockGroups::default();
        let extents = match self.needed_tree(objectid::EXTENT_TREE) {
            Some(root) => extents::read(context, &mut self.forest, &root, &mut groups),
            None => ExtentTable::default(),
        };
        let has_tree =
            context.superblock.compat_ro_flags().contains(CompatRoFlags::BLOCK_GROUP_TREE);
        let mut is_whole = extents.is_whole;
        if has_tree {
            is_whole = match self.needed_tree(objectid::BLOCK_GROUP_TREE) {
                Some(root) => groups.read(context, &mut self.forest, &root),
                None => false,
            };
        }
        groups.is_whole = is_whole;
        (extents, groups)
    }

    fn check_space(&mut self, space: Space<'_>) {
        let context = self.context;
        let Space { chunks, groups, extents } = space;
        if groups.is_whole {
            superblocks::check_bytes_used(context, groups);
            space::check_used(context, groups, extents);
        }
        if chunks.is_whole {
            space::check_extents(context, chunks, extents);
        }
        if groups.is_whole && chunks.is_whole {
            space::check_block_groups(context, chunks, groups);
            space::check_superblock_ranges(context, chunks, extents);
            space::check_space_cache(context, &self.roots, space);
        }
        let flags = context.superblock.compat_ro_flags();
        if !flags.contains(CompatRoFlags::FREE_SPACE_TREE) {
            return;
        }
        let Some(root) = self.needed_tree(objectid::FREE_SPACE_TREE) else { return };
        // Without the second flag the kernel ignores it.
        if flags.contains(CompatRoFlags::FREE_SPACE_TREE_VALID) && groups.is_whole {
            space::check_free_space_tree(context, &mut self.forest, &root, space);
        }
    }

    fn read_checksums(&mut self) -> ChecksumRanges {
        let Some(root) = self.needed_tree(objectid::CSUM_TREE) else {
            return ChecksumRanges::default();
        };
        ChecksumRanges::read(self.context, &mut self.forest, &root)
    }

    /// Reads trees that no other check has read, to check at least their shape.
    fn read_rest(&mut self) {
        for root in self.forest.roots().to_vec() {
            if !objectid::is_file_tree(root.tree) && self.forest.is_unread(&root) {
                for_each_item(self.context, &mut self.forest, &root, |_| {});
            }
        }
    }

    fn check_files(
        &mut self,
        extents: &ExtentTable,
        checksums: &ChecksumRanges,
    ) -> Result<(), Stopped> {
        let context = self.context;
        self.needed_tree(objectid::FS_TREE);
        let leaves = files::read_leaves(context, &mut self.forest, extents, checksums);
        context.progress.go_on()?;
        extents.check_checksums_of_room(context);
        context.progress.begin(Phase::Relations, 0);
        self.forest.check_edges(context);
        files::relate(context, &self.forest, &leaves, &self.roots);
        drop(leaves);
        context.progress.go_on()?;
        subvolumes::check_names(context, &self.forest, &self.roots);
        self.roots.add_references(context, extents);
        extents::add_tree_blocks(context, extents, &self.forest, &self.roots);
        if let Some(root) = self.tree(objectid::EXTENT_TREE) {
            extents::explain(context, extents, &self.forest, &root, self.roots.is_whole);
        }
        context.progress.go_on()
    }

    fn check_data(
        &mut self,
        extents: &ExtentTable,
        checksums: &ChecksumRanges,
        logged: &LoggedData,
    ) {
        let context = self.context;
        let total_bytes = checksums.total_bytes().saturating_add(logged.total_bytes(context));
        context.progress.begin(Phase::Data, total_bytes);
        let mut verified_bytes = checksums::check_pieces(context, &logged.pieces);
        if let Some(root) = self.tree(objectid::CSUM_TREE) {
            verified_bytes += checksums::check_data(context, &self.forest, &root);
        }
        self.statistics.verified_bytes = verified_bytes;
        checksums::check_parity(context, extents);
    }

    fn count(&mut self, extents: &ExtentTable, checksums: &ChecksumRanges) {
        let data = extents.records.iter().filter(|extent| extent.is_data());
        let tree_blocks = self.forest.blocks().len() as u64;
        self.statistics = Statistics {
            trees: self.forest.roots().len() as u64,
            tree_blocks,
            tree_block_bytes: tree_blocks * self.context.nodesize as u64,
            data_extents: data.clone().count() as u64,
            data_bytes: data.fold(0, |sum: u64, extent| sum.saturating_add(extent.len_bytes)),
            checksummed_bytes: checksums.total_bytes(),
            verified_bytes: 0,
        };
    }
}
