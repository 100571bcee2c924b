//! `larder cat`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::outcome::Outcome;
use crate::output::stdout_of_content;
use crate::source::{PathSource, warn_of_bad_copies};

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Write files of a file system that is not mounted to standard output
///
/// Example: larder cat disk.img:/etc/fstab
#[derive(Debug, Args)]
pub struct Cat {
    #[command(flatten)]
    source: PathSource,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

impl Cat {
    pub fn run(self) -> Outcome {
        let mut out = stdout_of_content();
        let mut buffer = vec![0; BUFFER_BYTES];
        for path in &self.paths {
            let named = || path.display().to_string();
            let file = self.source.find(path, true)?.into_file().with_context(named)?;
            let mut offset = 0;
            loop {
                let len = file.read_at(&mut buffer, offset).with_context(named)?;
                if len == 0 {
                    break;
                }
                out.write_all(&buffer[..len])?;
                offset += len as u64;
            }
            warn_of_bad_copies(file.subvolume().filesystem());
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}
