//! Checksums of data, and parity.

mod data;
mod parity;
mod ranges;

pub(crate) use data::check as check_data;
pub(crate) use parity::check as check_parity;
pub(crate) use ranges::ChecksumRanges;
