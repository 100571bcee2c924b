//! Checksums of data, and parity.

mod data;
mod parity;
mod ranges;

pub(crate) use data::{Piece, check as check_data, check_pieces};
pub(crate) use parity::check as check_parity;
pub(crate) use ranges::{ChecksumRanges, item_range};
