//! The content of files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use larder_ioctl::EncodedExtent;
use rustix::fs::{FallocateFlags, fallocate};

use super::paths::Paths;
use super::{Receiving, parents};
use crate::receive::encoded::Encoded;
use crate::receive::error::CommandProblem;
use crate::receive::target::Origin;
use crate::wire::Command;

/// Clone sources that are kept open; when there are more, they are looked up again.
const MOST_SOURCES: usize = 64;

impl Receiving {
    pub(super) fn change_data(&mut self, command: &Command<'_>) -> Result<(), CommandProblem> {
        match *command {
            Command::Write { path, offset, data } => {
                Ok(self.paths.file(path)?.write_all_at(data, offset)?)
            }
            Command::Truncate { path, size } => Ok(self.paths.file(path)?.set_len(size)?),
            // This stream has no data: the range stays as it is.
            Command::UpdateExtent { .. } => Ok(()),
            Command::EncodedWrite { path, offset, .. } => {
                let extent = Encoded::of(command)?;
                let file = self.paths.file(path)?;
                write_encoded(&file, offset, &extent)
            }
            Command::Clone { path, offset, len, clone_path, clone_offset, .. } => {
                if len == 0 {
                    // 0 would mean the whole rest.
                    return Err(CommandProblem::Invalid("it clones nothing"));
                }
                let source = self.clone_source(command, clone_path)?;
                let target = self.paths.file(path)?;
                Ok(larder_ioctl::clone_range(&target, offset, source, clone_offset, len)?)
            }
            Command::Fallocate { path, mode, offset, len } => {
                let known = FallocateFlags::KEEP_SIZE
                    | FallocateFlags::PUNCH_HOLE
                    | FallocateFlags::ZERO_RANGE;
                let mode = FallocateFlags::from_bits(mode).filter(|mode| known.contains(*mode));
                let mode = mode.ok_or(CommandProblem::Unsupported("this kind of allocation"))?;
                let file = self.paths.file(path)?;
                Ok(fallocate(&file, mode, offset, len).map_err(io::Error::from)?)
            }
            _ => Err(CommandProblem::Invalid("it is out of place")),
        }
    }

    /// The file to clone from: in this subvolume, or in one that was received before.
    fn clone_source(&mut self, command: &Command<'_>, path: &[u8]) -> Result<File, CommandProblem> {
        let Command::Clone { clone_uuid, clone_ctransid, .. } = *command else {
            return Err(CommandProblem::Invalid("it clones nothing"));
        };
        let origin = Origin { uuid: clone_uuid, ctransid: clone_ctransid };
        if origin.uuid == self.sent.uuid {
            return Ok(self.paths.source(path)?);
        }
        if !self.sources.contains_key(&origin) {
            let source = parents::find(&self.paths.root(), origin)?;
            if self.sources.len() >= MOST_SOURCES {
                self.sources.clear();
            }
            self.sources.insert(origin, Paths::new(source)?);
        }
        let missing = CommandProblem::NotReceived { uuid: origin.uuid };
        Ok(self.sources.get_mut(&origin).ok_or(missing)?.source(path)?)
    }
}

/// Writes an extent as it is stored, or decoded if the file system refuses it: that depends on the
/// offset, the sector size, and the file system.
fn write_encoded(file: &File, offset: u64, extent: &Encoded<'_>) -> Result<(), CommandProblem> {
    let stored = EncodedExtent {
        offset,
        len_bytes: extent.len_bytes,
        unencoded_len_bytes: extent.decoded_bytes,
        unencoded_offset: extent.start,
        compression: extent.compression,
        data: extent.data,
    };
    if extent.compression != 0 && larder_ioctl::write_encoded(file, &stored).is_ok() {
        return Ok(());
    }
    let decoded = extent.decode()?;
    Ok(file.write_all_at(extent.part(&decoded)?, offset)?)
}
