//! What an operation takes before it changes anything.

pub(crate) mod limits;
pub(crate) mod locks;
