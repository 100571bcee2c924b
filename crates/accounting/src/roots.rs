//! The trees that refer to data.

use std::collections::HashMap;

use larder_btree::{Tree, TreeRoot, TreeView};
use larder_filesystem::{Filesystem, Result, SubvolumeInfo};
use larder_format::{Key, Uuid, objectid};

/// A tree that refers to data.
pub(crate) struct Root {
    pub(crate) tree: Tree,
    /// The subvolume; none of a tree that the file system keeps for itself.
    pub(crate) info: Option<SubvolumeInfo>,
    /// Of a subvolume that is being deleted: what is before this key, on the way down to this
    /// level, is gone.
    pub(crate) dropped: Option<(Key, u8)>,
}

/// All such trees. A tree's number is its place here: subvolumes come first, relatives next to each
/// other in the order of their ids, since a block is mostly in successive snapshots. Then those
/// that are being deleted, then others.
pub(crate) struct Roots {
    pub(crate) all: Vec<Root>,
    /// How many of them are subvolumes that are not being deleted.
    pub(crate) subvolumes: u32,
    /// How many are subvolumes.
    pub(crate) with_deleted: u32,
    numbers: HashMap<u64, u32>,
}

impl Roots {
    pub(crate) fn of(filesystem: &Filesystem) -> Result<Self> {
        let infos = filesystem.subvolumes().collect::<Result<Vec<_>>>()?;
        let ancestry = Ancestry::of(&infos);
        let mut all = Vec::new();
        for info in infos {
            let Some((_, item)) = filesystem.root_item(info.id)? else { continue };
            let root = TreeRoot::of_item(info.id, &item);
            let tree = Tree::new(filesystem.cache().clone(), root);
            let dropped = (info.is_being_deleted && item.drop_progress.get() != Key::MIN)
                .then(|| (item.drop_progress.get(), item.drop_level));
            all.push(Root { tree, info: Some(info), dropped });
        }
        let order = |root: &Root| {
            root.info.as_ref().map(|info| (info.is_being_deleted, ancestry.origin(info), info.id))
        };
        all.sort_by_key(order);
        let is_there = |root: &&Root| root.info.as_ref().is_some_and(|info| !info.is_being_deleted);
        let subvolumes = all.iter().filter(is_there).count() as u32;
        let with_deleted = all.len() as u32;
        for view in
            [Some(filesystem.root_tree().clone()), filesystem.tree(objectid::DATA_RELOC_TREE).ok()]
        {
            if let Some(TreeView::Committed(tree)) = view {
                all.push(Root { tree, info: None, dropped: None });
            }
        }
        let numbers = (0..).zip(&all).map(|(number, root)| (root.tree.root().tree, number));
        let numbers = numbers.collect();
        Ok(Self { all, subvolumes, with_deleted, numbers })
    }

    /// The number of the tree with this id.
    pub(crate) fn number(&self, id: u64) -> Option<u32> {
        self.numbers.get(&id).copied()
    }

    /// The id of the tree with this number.
    pub(crate) fn id(&self, number: u32) -> u64 {
        self.all[number as usize].tree.root().tree
    }

    /// The subvolumes that are not being deleted, with their numbers.
    pub(crate) fn subvolumes(&self) -> impl Iterator<Item = (u32, &SubvolumeInfo)> {
        let infos = self.all.iter().map_while(|root| root.info.as_ref());
        (0..self.subvolumes).zip(infos)
    }
}

/// From which subvolume snapshots come in the end.
struct Ancestry {
    parents: HashMap<Uuid, Uuid>,
}

impl Ancestry {
    fn of(infos: &[SubvolumeInfo]) -> Self {
        Self { parents: infos.iter().map(|info| (info.uuid, info.parent_uuid)).collect() }
    }

    /// The oldest known ancestor, which may be gone.
    fn origin(&self, info: &SubvolumeInfo) -> Uuid {
        let mut at = info.uuid;
        // A chain is no longer than this, unless it is a loop.
        for _ in 0..self.parents.len() {
            match self.parents.get(&at) {
                Some(parent) if !parent.is_nil() => at = *parent,
                _ => break,
            }
        }
        at
    }
}
