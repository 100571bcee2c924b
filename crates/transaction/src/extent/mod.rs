//! The extent tree: all extents, with their back references.

mod apply;
mod checksums;
mod record;
mod referrer;
#[cfg(test)]
mod tests;

pub use apply::{ExtentChange, ExtentItems, References};
pub use checksums::ChecksumItems;
pub use referrer::Referrer;
