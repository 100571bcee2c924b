//! Ranges of files as commands: the part of a send that reads data, which workers do.

use std::sync::Arc;

use larder_filesystem::{DiskExtent, Inode};
use larder_format::compression::Algorithm;

use super::SendError;
use crate::wire::{Command, Version, encode};

/// The most that a worker reads at once.
pub(super) const WORK_BYTES: usize = 1 << 20;

/// A range of a file to be read and encoded.
pub(super) struct ReadJob {
    pub(super) inode: Inode,
    /// The path of the file at this point of the stream.
    pub(super) path: Arc<[u8]>,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Length in the file: at most [`WORK_BYTES`] for data that is sent decoded.
    pub(super) len_bytes: u64,
    pub(super) form: Form,
}

/// The form in which data is sent.
pub(super) enum Form {
    Plain,
    /// As stored: the extent, its compression, and the start of the range in it.
    Stored {
        extent: DiskExtent,
        compression: u32,
        offset_bytes: u64,
    },
}

impl ReadJob {
    /// Appends the commands that write the range. `data` is a buffer that is kept from job to job.
    pub(super) fn encode(
        &self,
        version: Version,
        data: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        match &self.form {
            Form::Plain => self.encode_plain(version, data, out),
            Form::Stored { extent, compression, offset_bytes } => {
                let data = self.inode.clone().into_file()?.read_stored(extent, self.offset)?;
                let command = Command::EncodedWrite {
                    path: &self.path,
                    offset: self.offset,
                    unencoded_file_len: self.len_bytes,
                    unencoded_len: extent.ram_bytes,
                    unencoded_offset: *offset_bytes,
                    compression: Some(*compression),
                    encryption: Some(0),
                    data: &data,
                };
                Ok(encode(&command, version, out)?)
            }
        }
    }

    fn encode_plain(
        &self,
        version: Version,
        data: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        data.resize(self.len_bytes as usize, 0);
        // The range ends at the end of the file or before.
        self.inode.clone().into_file()?.read_at(data, self.offset)?;
        let mut offset = self.offset;
        for data in data.chunks(write_bytes(version)) {
            encode(&Command::Write { path: &self.path, offset, data }, version, out)?;
            offset += data.len() as u64;
        }
        Ok(())
    }
}

/// Bytes of data in one command: it fits with any path, and is a multiple of every sector size
/// except the largest in version 1.
pub(super) const fn write_bytes(version: Version) -> usize {
    match version {
        Version::V1 => 48 << 10,
        Version::V2 | Version::V3 => 128 << 10,
    }
}

/// `BTRFS_ENCODED_IO_COMPRESSION_*`: LZO has one for each sector size.
pub(super) fn compression_number(algorithm: Algorithm, sectorsize: u32) -> u32 {
    match algorithm {
        Algorithm::Zlib => 1,
        Algorithm::Zstd => 2,
        Algorithm::Lzo => 3 + sectorsize.trailing_zeros().saturating_sub(12),
    }
}
