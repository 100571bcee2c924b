//! Subvolumes: their names and lists.

mod names;
mod uuid_tree;

pub(crate) use names::check as check_names;
pub(crate) use uuid_tree::check as check_uuid_tree;
