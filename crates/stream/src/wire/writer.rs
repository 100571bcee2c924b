//! Writing streams.

use std::io::{self, Write};

use super::attribute::Attribute;
use super::checksum::checksum;
use super::command::Command;
use super::error::TooLong;
use super::version::Version;
use super::{CHECKSUM_RANGE, COMMAND_HEADER_LEN, MAGIC};

/// Writes the commands of a stream.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    version: Version,
    command: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a stream of this version by writing its header.
    pub fn new(mut output: W, version: Version) -> io::Result<Self> {
        output.write_all(&header(version))?;
        Ok(Self { output, version, command: Vec::new() })
    }

    /// Writes a command. An error of kind [`io::ErrorKind::InvalidInput`] means that it is too long
    /// for this version; then nothing was written.
    pub fn write(&mut self, command: &Command<'_>) -> io::Result<()> {
        self.command.clear();
        encode(command, self.version, &mut self.command)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.output.write_all(&self.command)
    }

    /// The output, for what is not a command.
    pub fn output(&mut self) -> &mut W {
        &mut self.output
    }

    /// The output, for writing after the stream.
    pub fn into_inner(self) -> W {
        self.output
    }
}

/// The header of a stream.
pub(crate) fn header(version: Version) -> Vec<u8> {
    [&MAGIC[..], &version.number().to_le_bytes()].concat()
}

/// Appends a command to `out`. After an error `out` is unchanged.
pub fn encode(command: &Command<'_>, version: Version, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let start = out.len();
    encode_unchecked(command, version, out)?;
    let checksum = checksum(&out[start..]);
    out[start..][CHECKSUM_RANGE].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// As [`encode`]; the checksum stays zero.
pub(super) fn encode_unchecked(
    command: &Command<'_>,
    version: Version,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let start = out.len();
    out.extend_from_slice(&[0; COMMAND_HEADER_LEN]);
    let mut fits = command.number() <= version.last_command();
    command.for_each_attribute(|attribute, value| {
        out.extend_from_slice(&(attribute as u16).to_le_bytes());
        if attribute != Attribute::Data || !version.data_takes_the_rest() {
            let len = u16::try_from(value.len());
            fits &= len.is_ok();
            out.extend_from_slice(&len.unwrap_or_default().to_le_bytes());
        }
        out.extend_from_slice(value);
    });
    let len = out.len() - start - COMMAND_HEADER_LEN;
    if !fits || len > version.longest_command_bytes() {
        out.truncate(start);
        return Err(TooLong { command: command.name() });
    }
    let written = &mut out[start..];
    written[..4].copy_from_slice(&(len as u32).to_le_bytes());
    written[4..6].copy_from_slice(&command.number().to_le_bytes());
    Ok(())
}
