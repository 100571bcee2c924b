//! The extent tree: which extents there are, and where the references to each come from.

mod apply;
mod checksums;
mod record;
mod referrer;
#[cfg(test)]
mod tests;

pub use apply::{ExtentChange, ExtentItems, References};
pub use checksums::ChecksumItems;
pub use referrer::Referrer;
