//! The extent tree: which extents there are, and who refers to each.

mod apply;
mod checksums;
mod record;
mod referrer;
#[cfg(test)]
mod tests;

pub use apply::{ExtentChange, ExtentItems, References};
pub use checksums::ChecksumItems;
pub use referrer::Referrer;
