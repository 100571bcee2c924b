//! The extent tree: all extents, with their back references.

mod apply;
mod checksums;
mod record;
mod referrer;
#[cfg(test)]
mod tests;
mod walk;

pub use apply::{ExtentChange, ExtentItems, References};
pub use checksums::ChecksumItems;
pub use referrer::Referrer;
pub use walk::{BackReferences, FoundExtent, extent_at, extents};
