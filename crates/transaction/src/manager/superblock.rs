//! What a commit says in the superblock.

use larder_btree::TreeRoot;
use larder_format::Superblock;
use larder_format::objectid::{CSUM_TREE, DEV_TREE, EXTENT_TREE, FS_TREE};
use larder_format::superblock::{BACKUP_ROOTS, BackupRoot, SYS_CHUNK_ARRAY_SIZE};
use zerocopy::FromZeros;

use super::roots::Roots;

/// What the commit of a generation says.
pub(super) struct Committed<'a> {
    pub(super) generation: u64,
    pub(super) root_tree: TreeRoot,
    pub(super) chunk_tree: TreeRoot,
    pub(super) bytes_used: u64,
    pub(super) system_chunks: &'a [u8],
    pub(super) roots: &'a Roots,
}

impl Committed<'_> {
    /// Brings a superblock from the commit before to this one.
    pub(super) fn write_to(&self, superblock: &mut Superblock) {
        let before = superblock.generation.get();
        // A uuid tree that was complete still is: each commit keeps it so.
        if superblock.uuid_tree_generation.get() == before {
            superblock.uuid_tree_generation = self.generation.into();
        }
        superblock.generation = self.generation.into();
        superblock.root = self.root_tree.logical.0.into();
        superblock.root_level = self.root_tree.level;
        superblock.chunk_root = self.chunk_tree.logical.0.into();
        superblock.chunk_root_level = self.chunk_tree.level;
        superblock.chunk_root_generation = self.chunk_tree.generation.into();
        superblock.bytes_used = self.bytes_used.into();
        superblock.sys_chunk_array_size = (self.system_chunks.len() as u32).into();
        superblock.sys_chunk_array = [0; SYS_CHUNK_ARRAY_SIZE];
        superblock.sys_chunk_array[..self.system_chunks.len()].copy_from_slice(self.system_chunks);
        let slot = next_backup(&superblock.super_roots, before);
        superblock.super_roots[slot] = self.backup(superblock);
    }

    fn backup(&self, superblock: &Superblock) -> BackupRoot {
        let mut backup = BackupRoot::new_zeroed();
        let of_tree = |tree| {
            self.roots.get(tree).map_or((0, 0, 0), |(_, item)| {
                (item.bytenr.get(), item.generation.get(), item.level)
            })
        };
        let of_root = |root: TreeRoot| (root.logical.0, root.generation, root.level);
        macro_rules! set {
            ($address:ident, $generation:ident, $level:ident, $from:expr) => {
                let (address, generation, level) = $from;
                backup.$address = address.into();
                backup.$generation = generation.into();
                backup.$level = level;
            };
        }
        set!(tree_root, tree_root_gen, tree_root_level, of_root(self.root_tree));
        set!(chunk_root, chunk_root_gen, chunk_root_level, of_root(self.chunk_tree));
        set!(extent_root, extent_root_gen, extent_root_level, of_tree(EXTENT_TREE));
        set!(fs_root, fs_root_gen, fs_root_level, of_tree(FS_TREE));
        set!(dev_root, dev_root_gen, dev_root_level, of_tree(DEV_TREE));
        set!(csum_root, csum_root_gen, csum_root_level, of_tree(CSUM_TREE));
        backup.total_bytes = superblock.total_bytes;
        backup.bytes_used = superblock.bytes_used;
        backup.num_devices = superblock.num_devices;
        backup
    }
}

/// The slot behind that of the last commit.
fn next_backup(backups: &[BackupRoot; BACKUP_ROOTS], last_generation: u64) -> usize {
    let is_last = |backup: &BackupRoot| backup.tree_root_gen.get() == last_generation;
    backups.iter().position(is_last).map_or(0, |last| (last + 1) % BACKUP_ROOTS)
}
