//! The content of files.

use larder_filesystem::{AllocateMode, Error, File, FileType};
use larder_format::compression::Algorithm;

use super::applier::Applier;
use super::checked::Checked;
use super::names::Names;
use super::original::{self, copy_content};
use super::{MOST_SOURCES, find};
use crate::receive::encoded::Encoded;
use crate::receive::error::CommandProblem;
use crate::receive::target::Origin;
use crate::wire::{Command, Original};

const CLONES_NOTHING: CommandProblem = CommandProblem::Invalid("it clones nothing");
/// `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE`, `FALLOC_FL_ZERO_RANGE`.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

impl Applier {
    /// Applies a command about the content of a file.
    pub(super) fn change_data(
        &mut self,
        command: &Command<'_>,
        checked: Checked,
    ) -> Result<(), CommandProblem> {
        match *command {
            Command::Write { path, offset, data } => {
                Ok(self.file(path, checked)?.write_at(data, offset)?)
            }
            // This stream has no data: the range stays as it is.
            Command::UpdateExtent { .. } => Ok(()),
            Command::EncodedWrite { path, offset, .. } => {
                write_encoded(&self.file(path, checked)?, &Encoded::of(command)?, offset)
            }
            Command::Clone { path, offset, len, clone_path, clone_offset, .. } => {
                let source = self.clone_source(command, clone_path)?;
                if len == 0 {
                    // 0 would mean the whole rest.
                    return Err(CLONES_NOTHING);
                }
                let file = self.file(path, checked)?;
                Ok(file.clone_range(&source, clone_offset, len, offset)?)
            }
            Command::Fallocate { path, mode, offset, len } => {
                allocate(&self.file(path, checked)?, mode, offset, len)
            }
            _ => Err(CommandProblem::Invalid("it is out of place")),
        }
    }

    /// Gives the file at `path` the content of another.
    pub(super) fn copy(
        &mut self,
        path: &[u8],
        from: Original,
        checked: Checked,
    ) -> Result<(), CommandProblem> {
        let (from, copy) = (original::open(from, &self.filesystem)?, self.file(path, checked)?);
        copy_content(&from, &copy, &self.goes_on.0)?;
        Ok(())
    }

    fn file(&mut self, path: &[u8], checked: Checked) -> Result<File, CommandProblem> {
        let inode = self.names.inode(path)?;
        checked.check(&inode)?;
        Ok(inode.into_file()?)
    }

    /// The file to clone from: in this subvolume, or in one that was received before.
    fn clone_source(&mut self, command: &Command<'_>, path: &[u8]) -> Result<File, CommandProblem> {
        let Command::Clone { clone_uuid, clone_ctransid, .. } = *command else {
            return Err(CLONES_NOTHING);
        };
        let origin = Origin { uuid: clone_uuid, ctransid: clone_ctransid };
        let inode = if origin.uuid == self.origin {
            self.names.inode(path)?
        } else {
            if !self.sources.contains_key(&origin) {
                let source = find(&self.filesystem, origin)?;
                if self.sources.len() >= MOST_SOURCES {
                    self.sources.clear();
                }
                self.sources.insert(origin, Names::in_subvolume(source.root()?));
            }
            let missing = CommandProblem::NotReceived { uuid: origin.uuid };
            self.sources.get_mut(&origin).ok_or(missing)?.inode(path)?
        };
        match inode.file_type() {
            FileType::Regular => Ok(inode.into_file()?),
            _ => Err(Error::NotAFile.into()),
        }
    }
}

/// Writes an extent as it is stored, or decoded if this file cannot have it like that.
fn write_encoded(file: &File, extent: &Encoded<'_>, offset: u64) -> Result<(), CommandProblem> {
    let sector_bytes = file.subvolume().filesystem().volume().sectorsize();
    if let Some((algorithm, sectors)) = extent.algorithm()?
        && (algorithm != Algorithm::Lzo || sectors == sector_bytes)
    {
        let encoded = larder_filesystem::Encoded {
            algorithm,
            len_bytes: extent.len_bytes,
            unencoded_bytes: extent.decoded_bytes,
            unencoded_offset: extent.start,
        };
        match file.write_encoded(extent.data, &encoded, offset) {
            Err(Error::Invalid(_)) => {}
            written => return Ok(written?),
        }
    }
    let decoded = extent.decode()?;
    Ok(file.write_at(extent.part(&decoded)?, offset)?)
}

/// Allocates or deallocates a range.
fn allocate(file: &File, mode: u32, offset: u64, len_bytes: u64) -> Result<(), CommandProblem> {
    let size = if mode & KEEP_SIZE == 0 { AllocateMode::Grow } else { AllocateMode::KeepSize };
    match mode & !KEEP_SIZE {
        0 => file.allocate(offset, len_bytes, size)?,
        PUNCH_HOLE => file.punch_hole(offset, len_bytes)?,
        ZERO_RANGE => file.zero_range(offset, len_bytes, size)?,
        _ => return Err(CommandProblem::Unsupported("this kind of allocation")),
    }
    Ok(())
}
