//! Key pointers.

use super::{Context, TreeCheckError, ensure};
use crate::Node;

/// Checks that every child's address is valid.
pub(super) fn check(node: Node<'_>, context: &Context) -> Result<(), TreeCheckError> {
    for (slot, pointer) in node.key_pointers().iter().enumerate() {
        let child = pointer.blockptr.get();
        ensure(child != 0 && context.is_aligned(child), || {
            format!("the child's address {child} is not a multiple of {}", context.sectorsize)
        })
        .map_err(|problem| TreeCheckError {
            slot: Some(slot),
            key: Some(pointer.key.get()),
            problem,
        })?;
    }
    Ok(())
}
