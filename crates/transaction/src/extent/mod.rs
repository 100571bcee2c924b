//! The extent tree: all extents, with their back references.

mod apply;
mod backref;
mod checksums;
mod record;
mod referrer;
#[cfg(test)]
mod tests;
mod walk;

pub use apply::{ExtentChange, ExtentItems, References};
pub use backref::Backrefs;
pub(crate) use backref::{Parent, ReferringTree, committed_tree};
pub use checksums::ChecksumItems;
pub use referrer::Referrer;
pub use walk::{BackReferences, FoundExtent, extent_at, extents};
