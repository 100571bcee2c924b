//! The subvolume that an operand names.

use std::ffi::OsStr;

use anyhow::Context;
use larder::{MountedFilesystem, Overview};

use super::mounted::subvolume_at;
use crate::source::{Source, on_image};
use crate::target::Target;

/// The file system of `text`, and the id of the subvolume there.
pub fn subvolume_in(source: &Source, text: &OsStr) -> anyhow::Result<(Box<dyn Overview>, u64)> {
    if let Some(path) = source.mounted_path(text)? {
        let id = subvolume_at(path)?;
        return Ok((Box::new(MountedFilesystem::open(path)?), id));
    }
    let target = Target::parse(text);
    let filesystem = source.open(&target.image)?;
    let subvolume = filesystem.subvolume(target.path_os());
    let id = subvolume.with_context(|| on_image(&target.image))?.id();
    Ok((Box::new(filesystem), id))
}
