//! The extent items of a file and their checksums, in the trees.

pub(crate) mod checksums;
pub(crate) mod items;
pub(crate) mod nocow;
