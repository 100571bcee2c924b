//! Finding what an operand names.

use std::ffi::OsStr;

use super::bearer::Bearer;
use super::mounted::Mounted;
use crate::source::PathSource;

/// The inode of `text`.
pub fn find(source: &PathSource, text: &OsStr) -> anyhow::Result<Box<dyn Bearer>> {
    Ok(match source.mounted_path(text)? {
        Some(path) => Box::new(Mounted::open(path)?),
        None => Box::new(source.find(text, true)?),
    })
}
