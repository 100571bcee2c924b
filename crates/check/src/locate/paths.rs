//! Paths of inodes, from the top of the file system.

use std::collections::HashMap;

use larder_format::item::{InodeExtrefs, InodeRefs};
use larder_format::{ItemType, Key, objectid};

use crate::blocks::{Forest, TreeRoot, find_item_from};
use crate::context::Context;
use crate::roots::RootTree;

/// Most names in a path.
const MOST_NAMES: usize = 256;
/// Most references to look up for all paths.
const MOST_LOOKUPS: u32 = 50_000;

/// A name, and the directory that has it.
#[derive(Clone, Debug)]
struct Step {
    tree: u64,
    directory: u64,
    name: Box<[u8]>,
}

pub(super) struct Paths<'a, 'v> {
    context: &'a Context<'v>,
    forest: &'a Forest,
    roots: &'a RootTree,
    trees: HashMap<u64, &'a TreeRoot>,
    /// The first name of each inode, by tree and number.
    steps: HashMap<(u64, u64), Option<Step>>,
    lookups_left: u32,
}

impl<'a, 'v> Paths<'a, 'v> {
    pub(super) fn new(context: &'a Context<'v>, forest: &'a Forest, roots: &'a RootTree) -> Self {
        let trees = forest.roots().iter().map(|root| (root.tree, root)).collect();
        let steps = HashMap::new();
        Self { context, forest, roots, trees, steps, lookups_left: MOST_LOOKUPS }
    }

    /// A path of an inode; `None` if no names lead to it.
    pub(super) fn of(&mut self, subvolume: u64, inode: u64) -> Option<String> {
        let (mut tree, mut ino) = (subvolume, inode);
        let mut names: Vec<Box<[u8]>> = Vec::new();
        while (tree, ino) != (objectid::FS_TREE, objectid::FIRST_FREE) {
            let step = self.step(tree, ino).filter(|_| names.len() < MOST_NAMES)?;
            (tree, ino) = (step.tree, step.directory);
            names.push(step.name);
        }
        let names = names.iter().rev().map(|name| printable(name));
        let path = names.fold(String::new(), |path, name| path + "/" + &name);
        Some(if path.is_empty() { "/".into() } else { path })
    }

    fn step(&mut self, tree: u64, ino: u64) -> Option<Step> {
        if let Some(known) = self.steps.get(&(tree, ino)) {
            return known.clone();
        }
        self.lookups_left = self.lookups_left.checked_sub(1)?;
        let is_top = ino == objectid::FIRST_FREE;
        let step = if is_top { self.subvolume(tree) } else { self.inode(tree, ino) };
        self.steps.insert((tree, ino), step.clone());
        step
    }

    fn subvolume(&self, id: u64) -> Option<Step> {
        let name = self.roots.back_refs.iter().find(|name| name.child == id)?;
        Some(Step { tree: name.parent, directory: name.dirid, name: name.name.clone() })
    }

    fn inode(&self, tree: u64, ino: u64) -> Option<Step> {
        let first = Key::new(ino, ItemType::INODE_REF, 0);
        let root = self.trees.get(&tree)?;
        let (key, data) = find_item_from(self.context, self.forest, root, first)?;
        let (directory, name) = match key.item_type {
            _ if key.objectid != ino => return None,
            ItemType::INODE_REF => (key.offset, InodeRefs::new(&data).next()?.ok()?.name),
            ItemType::INODE_EXTREF => {
                let name = InodeExtrefs::new(&data).next()?.ok()?;
                (name.parent, name.name)
            }
            _ => return None,
        };
        Some(Step { tree, directory, name: name.into() })
    }
}

/// A name without control characters.
fn printable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let escape = |path: String, c: char| {
        if c.is_control() { path + &c.escape_default().to_string() } else { path + &c.to_string() }
    };
    text.chars().fold(String::new(), escape)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_cannot_move_the_cursor() {
        assert_eq!(super::printable("bröd\x1b[2J\n".as_bytes()), "bröd\\u{1b}[2J\\n");
    }
}
