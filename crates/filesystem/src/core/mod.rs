//! An open file system, below its handles.

pub(crate) mod balances;
pub(crate) mod scrubs;
pub(crate) mod shared;
pub(crate) mod writer;
