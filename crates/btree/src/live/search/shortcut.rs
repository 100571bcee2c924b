//! The way past the upper levels: from a finger straight to the leaf.

use larder_format::Key;

use super::arrival::search_after_first;
use super::target::{Intent, Target};
use crate::expected::Expected;
use crate::live::path::path::{Held, Path};
use crate::live::state::forest::InMemory;
use crate::live::state::tree::TreeState;

/// The leaf of the target, held as its intent wants it, if a finger of this thread leads there and
/// the change needs nothing else.
pub(super) fn by_finger<'t>(tree: &'t TreeState, target: &Target<'_>) -> Option<Path<'t>> {
    let mut lane = tree.fingers.lane()?;
    let finger = lane.find(target.key, |node| tree.may_change(node))?;
    let slot = finger.node.node().child_slot(target.key);
    let expected = Expected::child(tree.id, finger.node.node(), slot);
    let upper = finger.node.child_upper(slot, finger.upper);
    let leaf = hold_leaf(tree, target.intent, &expected, upper)?;
    if !finger.is_current() {
        return None;
    }
    let mut path = Path::new(tree, leaf);
    path.upper = upper;
    if !stays_in_leaf(&mut path, target, expected.first_key == Some(target.key)) {
        return None;
    }
    lane.count_hit();
    Some(path)
}

fn hold_leaf<'t>(
    tree: &'t TreeState,
    intent: Intent<'_>,
    expected: &Expected,
    upper: Option<Key>,
) -> Option<Held<'t>> {
    let key = expected.first_key.unwrap_or(Key::MIN);
    match tree.forest.in_memory(expected)? {
        InMemory::Clean(block) if intent == Intent::Read => {
            expected.check_upper(&block, upper).is_ok().then_some(Held::Clean(block))
        }
        InMemory::Live(live) if intent == Intent::Read => {
            Some(Held::Read(tree.read_block(&live, key)))
        }
        InMemory::Live(live) if tree.is_own(live.generation) => {
            let guard = tree.write_block(&live, key);
            tree.may_change(&guard).then_some(Held::Write(guard))
        }
        _ => None,
    }
}

/// Finds the place in the leaf, and says whether the change stays within the leaf.
fn stays_in_leaf(path: &mut Path<'_>, target: &Target<'_>, is_first: bool) -> bool {
    let leaf = path.leaf().node();
    let (free, count) = (leaf.leaf_free_space(), leaf.nritems());
    let place = if is_first { Ok(0) } else { search_after_first(leaf, target.key) };
    path.found = place.is_ok();
    path.steps[0].slot = place.unwrap_or_else(|slot| slot);
    match target.intent {
        Intent::Read | Intent::Modify => true,
        Intent::Insert { .. }
        | Intent::Put { .. }
        | Intent::Replace { .. }
        | Intent::Grow { .. }
        | Intent::Duplicate => target.intent.bytes_at(path).is_none_or(|bytes| bytes <= free),
        Intent::Delete { .. } | Intent::DeleteRun { .. } => {
            path.count = target.intent.removals_at(path);
            path.count == 0 || (path.slot() > 0 && path.count < count)
        }
        Intent::SetKey | Intent::Merge => false,
    }
}
