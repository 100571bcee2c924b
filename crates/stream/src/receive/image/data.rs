//! The content of files.

use larder_filesystem::{AllocateMode, Error, FileType, Inode};
use larder_format::compression::{Algorithm, ExtentKind, MAX_UNCOMPRESSED_BYTES, decompress};

use super::names::Names;
use super::{MOST_SOURCES, Receiving, find};
use crate::receive::error::CommandProblem;
use crate::receive::target::Origin;
use crate::wire::Command;

/// `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE`, `FALLOC_FL_ZERO_RANGE`.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

impl Receiving {
    /// Applies a command about the content of a file.
    pub(super) fn change_data(&mut self, command: &Command<'_>) -> Result<(), CommandProblem> {
        match *command {
            Command::Write { path, offset, data } => Ok(self.file(path)?.write_at(data, offset)?),
            Command::Truncate { path, size } => Ok(self.file(path)?.truncate(size)?),
            // There is no data in this stream: the range stays as it is.
            Command::UpdateExtent { .. } => Ok(()),
            Command::EncodedWrite {
                path,
                offset,
                unencoded_file_len,
                unencoded_len,
                unencoded_offset,
                compression,
                encryption,
                data,
            } => {
                if encryption.unwrap_or_default() != 0 {
                    return Err(CommandProblem::Unsupported("encryption"));
                }
                let number = compression.unwrap_or_default();
                let whole = decode(number, data, unencoded_len)?;
                let range = unencoded_offset
                    .checked_add(unencoded_file_len)
                    .and_then(|end| whole.get(unencoded_offset as usize..end as usize));
                let part =
                    range.ok_or(CommandProblem::Invalid("a part that the extent has not"))?;
                Ok(self.file(path)?.write_at(part, offset)?)
            }
            Command::Clone { path, offset, len, clone_path, clone_offset, .. } => {
                let source = self.clone_source(command, clone_path)?;
                if len == 0 {
                    // That would be all that there is.
                    return Err(CommandProblem::Invalid("it clones nothing"));
                }
                Ok(self.file(path)?.clone_range(&source, clone_offset, len, offset)?)
            }
            Command::Fallocate { path, mode, offset, len } => {
                allocate(&self.file(path)?, mode, offset, len)
            }
            _ => Err(CommandProblem::Invalid("it has no place here")),
        }
    }

    fn file(&mut self, path: &[u8]) -> Result<Inode, CommandProblem> {
        Ok(self.names.inode(path)?)
    }

    /// The file that is cloned from: in this subvolume, or in one that was received before.
    fn clone_source(
        &mut self,
        command: &Command<'_>,
        path: &[u8],
    ) -> Result<Inode, CommandProblem> {
        let Command::Clone { clone_uuid, clone_ctransid, .. } = *command else {
            return Err(CommandProblem::Invalid("it clones nothing"));
        };
        let origin = Origin { uuid: clone_uuid, ctransid: clone_ctransid };
        let inode = if origin.uuid == self.sent.uuid {
            self.names.inode(path)?
        } else {
            if !self.sources.contains_key(&origin) {
                let source = find(self.subvolume.filesystem(), origin)?;
                if self.sources.len() >= MOST_SOURCES {
                    self.sources.clear();
                }
                self.sources.insert(origin, Names::new(source.root()?));
            }
            let missing = CommandProblem::NotReceived { uuid: origin.uuid };
            self.sources.get_mut(&origin).ok_or(missing)?.inode(path)?
        };
        match inode.file_type() {
            FileType::Regular => Ok(inode),
            _ => Err(Error::NotAFile.into()),
        }
    }
}

/// Decodes a whole extent (`BTRFS_ENCODED_IO_COMPRESSION_*`).
fn decode(number: u32, data: &[u8], len_bytes: u64) -> Result<Vec<u8>, CommandProblem> {
    /// LZO has a number for each sector size from 4 KiB on.
    const LZO: std::ops::RangeInclusive<u32> = 3..=7;
    let (algorithm, sector_bytes) = match number {
        0 if data.len() as u64 == len_bytes => return Ok(data.to_vec()),
        0 => return Err(CommandProblem::Invalid("data that is not as long as it says")),
        1 => (Algorithm::Zlib, 4096),
        2 => (Algorithm::Zstd, 4096),
        number if LZO.contains(&number) => (Algorithm::Lzo, 4096 << (number - LZO.start())),
        _ => return Err(CommandProblem::Unsupported("this compression")),
    };
    if len_bytes > MAX_UNCOMPRESSED_BYTES as u64 {
        return Err(CommandProblem::Invalid("a compressed extent of more than 128 KiB"));
    }
    // One that was in a tree is not padded to sectors.
    let is_whole = data.len().is_multiple_of(sector_bytes as usize);
    let kind = if is_whole { ExtentKind::Regular } else { ExtentKind::Inline };
    let mut decoded = vec![0; len_bytes as usize];
    decompress(algorithm, data, &mut decoded, sector_bytes, kind)?;
    Ok(decoded)
}

/// Allocates or deallocates a range.
fn allocate(file: &Inode, mode: u32, offset: u64, len_bytes: u64) -> Result<(), CommandProblem> {
    let size = if mode & KEEP_SIZE == 0 { AllocateMode::Grow } else { AllocateMode::KeepSize };
    match mode & !KEEP_SIZE {
        0 => file.allocate(offset, len_bytes, size)?,
        PUNCH_HOLE => file.punch_hole(offset, len_bytes)?,
        ZERO_RANGE => file.zero_range(offset, len_bytes, size)?,
        _ => return Err(CommandProblem::Unsupported("this kind of allocation")),
    }
    Ok(())
}
