//! A directory of a file system in an image.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use larder::{
    Directory, ErrorKind, ReceiveCheckpoints, ReceiveError, ReceiveOptions, ReceiveSnapshots,
    Received,
};
use larder_objects::streams::{Name, Origin, StreamId};

use super::destination::{AtName, Destination, Observe, origins};
use super::note::{NOTE, Note};
use crate::command::receive::trimmed;
use crate::source::{Writing, on_image};
use crate::target::Target;

pub(super) struct Image {
    writing: Writing,
    directory: Directory,
    /// The note's path in the file system.
    note: PathBuf,
    target: OsString,
}

impl Image {
    pub(super) fn open(writing: Writing, target: &OsStr) -> anyhow::Result<Self> {
        let path = writing.path(target)?;
        let directory = writing.start.open_directory(&path);
        let directory = directory.with_context(|| on_image(&Target::parse(target).image))?;
        let note = Path::new(&path).join(NOTE);
        Ok(Self { writing, directory, note, target: target.to_owned() })
    }
}

impl Destination for Image {
    fn there(&self) -> anyhow::Result<Vec<Origin>> {
        let mut there = Vec::new();
        for info in self.writing.filesystem.subvolumes() {
            there.extend(origins(&info?));
        }
        Ok(there)
    }

    fn find(&self, name: &Name) -> anyhow::Result<AtName> {
        let found = match self.directory.child(OsStr::from_bytes(name.as_bytes())) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(AtName::Nothing),
            found => found?,
        };
        if !found.is_subvolume_root() {
            return Ok(AtName::Other);
        }
        let info = found.subvolume().info()?;
        Ok(AtName::of(info.is_read_only, info.received_uuid))
    }

    fn delete(&self, name: &[u8]) -> anyhow::Result<()> {
        self.directory.delete_child_subvolume(OsStr::from_bytes(name))?;
        Ok(self.writing.filesystem.sync()?)
    }

    fn checkpoints(&self, stream: StreamId) -> anyhow::Result<Vec<u64>> {
        let mut positions = Vec::new();
        for entry in self.directory.entries()? {
            let name = entry?.name().as_bytes().to_vec();
            positions.extend(ReceiveCheckpoints::position(stream.number(), &name));
        }
        Ok(positions)
    }

    fn noted(&self) -> anyhow::Result<Option<Note>> {
        match self.writing.start.read(&self.note) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            text => Ok(Note::parse(&text?)),
        }
    }

    fn note(&mut self, note: Option<&Note>) -> anyhow::Result<()> {
        match note {
            Some(note) => self.writing.start.write(&self.note, note.to_bytes())?,
            None => self.writing.start.remove_file(&self.note)?,
        }
        Ok(self.writing.filesystem.sync()?)
    }

    fn receive(
        &self,
        input: Box<dyn Read + Send>,
        options: &ReceiveOptions,
        observe: Observe<'_>,
    ) -> Result<Received, ReceiveError> {
        self.directory.receive(input, options, observe)
    }

    fn shown(&self, name: &Name) -> String {
        format!("{}/{name}", trimmed(&self.target))
    }
}
