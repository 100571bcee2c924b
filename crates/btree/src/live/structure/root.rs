//! The root: a tree that grows or loses a level.

use larder_format::Key;

use crate::block::Block;
use crate::live::bytes::node::{NodeMut, pointer};
use crate::live::error::ChangeError;
use crate::live::path::path::{Held, Path, Step};
use crate::root::TreeRoot;

/// If the last step hangs from the root pointer: puts a new root with one pointer between.
pub(super) fn grow_below_root_pointer(path: &mut Path<'_>) -> Result<(), ChangeError> {
    let at = path.bottom();
    if path.steps[at - 1].held.block().is_some() {
        return Ok(());
    }
    let old = path.block(at);
    let (level, near) = (old.level() + 1, old.logical());
    let first_key = old.node().first_key().unwrap_or(Key::MIN);
    let child = pointer(first_key, near, old.generation());
    let mut new = path.tree.new_block(level, first_key, near)?;
    NodeMut::new(new.bytes_mut()).insert(0, &[child]);
    path.set_root(root_at(path, &new));
    path.steps.insert(at, Step { held: Held::Write(new), slot: 0 });
    Ok(())
}

/// If the root, the path's last step, is a node with one child: makes that child the root.
pub(super) fn lower_root(path: &mut Path<'_>) {
    let node = path.node(1);
    if node.is_leaf() || node.nritems() > 1 {
        return;
    }
    let pointer = node.key_pointers()[0];
    let root = TreeRoot {
        tree: path.tree.id,
        logical: pointer.blockptr(),
        level: node.level() - 1,
        generation: pointer.generation.get(),
    };
    path.tree.free(path.block(1));
    path.steps.truncate(1);
    path.set_root(root);
}

/// Makes the block of step `at` the root.
pub(super) fn make_root(path: &mut Path<'_>, at: usize) {
    path.set_root(root_at(path, path.block(at)));
}

fn root_at(path: &Path<'_>, block: &Block) -> TreeRoot {
    TreeRoot {
        tree: path.tree.id,
        logical: block.logical(),
        level: block.level(),
        generation: block.generation(),
    }
}
