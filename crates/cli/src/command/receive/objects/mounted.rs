//! A directory of a mounted file system.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use larder::{
    MountedFilesystem, MountedSnapshot, Overview, ReceiveCheckpoints, ReceiveError, ReceiveOptions,
    Received,
};
use larder_objects::streams::{Name, Origin, StreamId};
use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::destination::{AtName, Destination, Observe, origins};
use super::note::{NOTE, Note};

pub(super) struct Mounted {
    directory: PathBuf,
    /// Locked, so that no other command receives objects here.
    note: File,
    is_noted: bool,
}

impl Mounted {
    /// The directory may be another user's, who may have put anything in the place of the note.
    pub(super) fn open(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(NOTE);
        let named = || path.display().to_string();
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let note = options.custom_flags(flags.bits().cast_signed()).open(&path);
        let note = note.with_context(named)?;
        let found = note.metadata().with_context(named)?;
        let is_own = found.is_file() && found.uid() == geteuid().as_raw() && found.nlink() <= 1;
        ensure!(is_own, "{}: is no file of this user alone: remove it", path.display());
        let directory = directory.to_owned();
        match note.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(named),
            Err(TryLockError::WouldBlock) => {
                bail!("{}: somebody else is receiving streams here", directory.display())
            }
        }
        // The command that had the lock before may have removed the file.
        if note.metadata().with_context(named)?.nlink() == 0 {
            return Self::open(&directory);
        }
        let mut mounted = Self { directory, note, is_noted: true };
        mounted.is_noted = mounted.noted()?.is_some();
        Ok(mounted)
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.directory.join(OsStr::from_bytes(name.as_bytes()))
    }

    fn read_note(&self) -> io::Result<Option<Note>> {
        let mut text = Vec::new();
        let mut note = &self.note;
        note.rewind()?;
        note.read_to_end(&mut text)?;
        Ok(Note::parse(&text))
    }

    fn write_note(&self, text: &[u8]) -> io::Result<()> {
        let mut note = &self.note;
        note.set_len(0)?;
        note.rewind()?;
        note.write_all(text)?;
        note.sync_all()
    }
}

impl Destination for Mounted {
    fn there(&self) -> anyhow::Result<Vec<Origin>> {
        let filesystem = MountedFilesystem::open(&self.directory)?;
        let mut there = Vec::new();
        for info in filesystem.subvolumes()? {
            there.extend(origins(&info?));
        }
        Ok(there)
    }

    fn find(&self, name: &Name) -> anyhow::Result<AtName> {
        let path = self.path(name);
        let named = || path.display().to_string();
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(AtName::Nothing),
            Err(error) => return Err(error).with_context(named),
            Ok(metadata) if !metadata.is_dir() => return Ok(AtName::Other),
            Ok(_) => {}
        }
        match MountedSnapshot::open(&path) {
            Ok(_) => {}
            Err(error) if is_no_subvolume(&error) => return Ok(AtName::Other),
            Err(error) => return Err(error).with_context(named),
        }
        let root = File::open(&path).with_context(named)?;
        let info = larder_ioctl::subvolume_info(root).with_context(named)?;
        Ok(AtName::of(info.is_read_only, info.received_uuid))
    }

    fn delete(&self, name: &[u8]) -> anyhow::Result<()> {
        let named = || self.directory.join(OsStr::from_bytes(name)).display().to_string();
        let directory = File::open(&self.directory).with_context(named)?;
        larder_ioctl::delete_subvolume(directory, name).with_context(named)
    }

    fn checkpoints(&self, stream: StreamId) -> anyhow::Result<Vec<u64>> {
        let named = || self.directory.display().to_string();
        let mut positions = Vec::new();
        for entry in fs::read_dir(&self.directory).with_context(named)? {
            let name = entry.with_context(named)?.file_name();
            positions.extend(ReceiveCheckpoints::position(stream.number(), name.as_bytes()));
        }
        Ok(positions)
    }

    fn noted(&self) -> anyhow::Result<Option<Note>> {
        self.read_note().with_context(|| self.directory.join(NOTE).display().to_string())
    }

    fn note(&mut self, note: Option<&Note>) -> anyhow::Result<()> {
        let written = self.write_note(&note.map(Note::to_bytes).unwrap_or_default());
        written.with_context(|| self.directory.join(NOTE).display().to_string())?;
        self.is_noted = note.is_some();
        Ok(())
    }

    fn receive(
        &self,
        input: Box<dyn Read + Send>,
        options: &ReceiveOptions,
        observe: Observe<'_>,
    ) -> Result<Received, ReceiveError> {
        larder::receive_mounted(&self.directory, input, options, observe)
    }

    fn shown(&self, name: &Name) -> String {
        format!("{}/{name}", self.directory.display().to_string().trim_end_matches('/'))
    }
}

fn is_no_subvolume(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.is_noted {
            // If it stays, it says nothing.
            let _ = fs::remove_file(self.directory.join(NOTE));
        }
    }
}
