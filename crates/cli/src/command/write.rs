//! `larder write`.

use std::ffi::OsString;
use std::io::{self, Read};

use anyhow::Context;
use clap::Args;
use larder::ErrorKind;

use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::source::{PathSource, Writing};

/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// Permissions of a new file, before the umask.
const PERMISSIONS: u32 = 0o666;

/// Write standard input to a file in a file system that is not mounted
///
/// A file that is there keeps its attributes and gets new content.
///
/// Example: echo hello | larder write disk.img:/etc/motd
#[derive(Debug, Args)]
pub struct Write {
    #[command(flatten)]
    source: PathSource,
    /// The file
    #[arg(value_name = "IMAGE:/PATH")]
    path: OsString,
}

impl Write {
    pub fn run(self) -> Outcome {
        self.source.change(&self.path, |writing| self.write(writing).map(|()| 0))
    }

    fn write(&self, writing: &Writing) -> anyhow::Result<()> {
        let path = writing.path(&self.path)?;
        let file = match writing.create_file(&path, PERMISSIONS) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let file = writing.start.open_file(&path)?;
                file.set_len(0)?;
                file
            }
            created => created?,
        };
        let mut progress = Progress::of_bytes();
        let mut input = io::stdin().lock();
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut offset = 0;
        loop {
            buffer.clear();
            let read = input.by_ref().take(BUFFER_BYTES as u64).read_to_end(&mut buffer);
            read.context("standard input")?;
            if buffer.is_empty() {
                break;
            }
            let written = file.write_at(&buffer, offset);
            written.with_context(|| self.path.display().to_string())?;
            offset += buffer.len() as u64;
            progress.set(offset);
        }
        Ok(())
    }
}
