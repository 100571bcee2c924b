//! Tar archives.

pub mod acl_text;
mod reader;
mod sparse;
mod unpack;

pub use unpack::Unpack;
