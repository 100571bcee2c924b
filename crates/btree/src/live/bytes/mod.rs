//! Changing the bytes of one block: of a [`leaf`], of an internal [`node`].

pub(crate) mod leaf;
pub(crate) mod node;
