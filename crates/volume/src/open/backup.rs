//! Earlier commits, which a superblock keeps the roots of.

use std::sync::Arc;

use larder_format::Logical;
use larder_format::objectid::ROOT_TREE;
use larder_format::superblock::BackupRoot;

use super::StateRoot;
use crate::read::BlockExpectation;
use crate::volume::Volume;

impl Volume {
    /// Goes back to the newest commit whose trees begin with blocks that can be read. Returns whether
    /// that is an earlier one than the superblock's. If there is none, nothing changes.
    ///
    /// Space that such a commit had in use may have been written since: deeper blocks can be gone.
    pub(super) fn use_backup_root(&mut self) -> bool {
        let superblock = self.superblock();
        if self.has_root_tree() {
            return false;
        }
        let mut backups = superblock.super_roots;
        backups.sort_unstable_by_key(|backup| std::cmp::Reverse(backup.tree_root_gen.get()));
        let is_earlier =
            |backup: &&BackupRoot| backup.tree_root_gen.get() < superblock.generation.get();
        let found = backups.iter().filter(is_earlier).find(|backup| self.has_roots(backup));
        let Some(found) = found.copied() else { return false };
        self.go_to(&StateRoot {
            root: Logical(found.tree_root.get()),
            level: found.tree_root_level,
            generation: found.tree_root_gen.get(),
        });
        true
    }

    /// Goes to another commit.
    pub(super) fn go_to(&mut self, state: &StateRoot) {
        let superblock = Arc::make_mut(self.superblock.get_mut());
        if superblock.generation.get() == state.generation {
            return;
        }
        let is_it = |backup: &&BackupRoot| backup.tree_root_gen.get() == state.generation;
        if let Some(backup) = superblock.super_roots.iter().find(is_it) {
            superblock.bytes_used = backup.bytes_used;
        }
        self.set_root(state);
    }

    /// Takes `state` for the last commit.
    pub(crate) fn set_root(&mut self, state: &StateRoot) {
        let superblock = Arc::make_mut(self.superblock.get_mut());
        superblock.generation = state.generation.into();
        superblock.root = state.root.0.into();
        superblock.root_level = state.level;
        // A log continues the newest commit.
        superblock.log_root = 0.into();
        superblock.log_root_level = 0;
    }

    /// Whether the root of the root tree can be read.
    pub fn has_root_tree(&self) -> bool {
        let superblock = self.superblock();
        let (root, generation) = (superblock.root.get(), superblock.generation.get());
        self.can_read(&(root, superblock.root_level, generation), ROOT_TREE)
    }

    /// Whether the trees of a commit begin with blocks that can be read.
    fn has_roots(&self, backup: &BackupRoot) -> bool {
        use larder_format::objectid::{EXTENT_TREE, FS_TREE};
        let BackupRoot { tree_root, tree_root_level, tree_root_gen, .. } = *backup;
        let BackupRoot { extent_root, extent_root_level, extent_root_gen, .. } = *backup;
        let BackupRoot { fs_root, fs_root_level, fs_root_gen, .. } = *backup;
        [
            ((tree_root.get(), tree_root_level, tree_root_gen.get()), ROOT_TREE),
            ((extent_root.get(), extent_root_level, extent_root_gen.get()), EXTENT_TREE),
            ((fs_root.get(), fs_root_level, fs_root_gen.get()), FS_TREE),
        ]
        .iter()
        .filter(|(_, tree)| *tree != EXTENT_TREE || !self.rescue.ignore_bad_roots)
        .all(|(root, tree)| self.can_read(root, *tree))
    }

    fn can_read(&self, (root, level, generation): &(u64, u8, u64), tree: u64) -> bool {
        let expected = BlockExpectation {
            generation: Some(*generation),
            level: Some(*level),
            owner: Some(tree),
            first_key: None,
        };
        let mut block = vec![0; self.nodesize() as usize];
        self.read_tree_block(Logical(*root), &expected, &mut block).is_ok()
    }
}
