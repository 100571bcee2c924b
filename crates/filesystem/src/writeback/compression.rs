//! Whether and how writeback compresses a file's data.

use larder_format::compression::Algorithm;
use larder_format::item::{DirEntries, InodeFlags};
use larder_format::{ItemType, Key, name_hash};

use crate::compression::compress::Plan;
use crate::core::writer::Writer;
use crate::error::{Error, Result};
use crate::item::property::{COMPRESSION, USUAL_COMPRESSION, can_compress};
use crate::live::inode::{InodeState, LiveInode};

/// How the data of a file, whose state is locked, is compressed; none if it is not.
pub(crate) fn compression_plan(
    writer: &Writer,
    live: &LiveInode,
    state: &InodeState,
) -> Result<Option<Plan>> {
    let flags = state.item.flags();
    let general = *writer.compression.read();
    let force = general.is_some_and(|general| general.force);
    let asks = flags.contains(InodeFlags::COMPRESS);
    let is_wanted = general.is_some() || asks;
    let is_refused = flags.contains(InodeFlags::NOCOMPRESS) && !force;
    if !can_compress(flags) || !is_wanted || is_refused {
        return Ok(None);
    }
    let own = if asks { own_algorithm(live)? } else { None };
    let compression = match (own, general) {
        (Some(own), Some(general)) if general.compression.algorithm() == own => general.compression,
        (Some(own), _) => own.into(),
        (None, Some(general)) => general.compression,
        (None, None) => USUAL_COMPRESSION.into(),
    };
    Ok(Some(Plan { compression, force, gives_up: !force && own.is_none() }))
}

/// The algorithm that a file's property names.
fn own_algorithm(live: &LiveInode) -> Result<Option<Algorithm>> {
    let key = Key::new(live.number(), ItemType::XATTR_ITEM, name_hash::dir_name(COMPRESSION));
    let item = live.tree().get(key)?.unwrap_or_default();
    for entry in DirEntries::new(&item) {
        let entry = entry.map_err(|problem| Error::item(live.tree().id(), key, problem))?;
        let is_named = |algorithm: &Algorithm| {
            entry.name == COMPRESSION && entry.data.starts_with(algorithm.name().as_bytes())
        };
        if let Some(algorithm) = Algorithm::ALL.into_iter().find(is_named) {
            return Ok(Some(algorithm));
        }
    }
    Ok(None)
}
