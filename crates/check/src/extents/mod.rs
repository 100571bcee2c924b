//! Extents, and the references to them.

mod explain;
mod references;
mod table;
mod tree;

pub(crate) use explain::explain;
pub(crate) use references::{DataReference, LeafReferences, add_tree_blocks};
pub(crate) use table::{ExtentRecord, ExtentTable};
pub(crate) use tree::read;
