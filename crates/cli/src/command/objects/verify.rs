//! `larder objects verify`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larder_objects::Address;

use crate::objects::{parse_address, store};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::progress::Progress;

/// Read all objects that the kept states need, and compare them with their checksums
///
/// Names each object that is missing or damaged, with the states that need it; the exit code is 1
/// then. `larder check` on the same URL checks the file system in them.
///
/// Example: larder objects verify s3://bucket/photos
#[derive(Debug, Args)]
pub struct Verify {
    /// Where the file system is
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

impl Verify {
    pub fn run(self) -> Outcome {
        let store = store(&self.address)?;
        let mut progress = Progress::of_bytes();
        let verified = larder_objects::verify(&store, |done, total| progress.set_of(done, total))?;
        drop(progress);
        let mut out = stdout();
        for finding in &verified.findings {
            writeln!(out, "{finding}")?;
        }
        writeln!(out, "{} bytes of segments are as they were written", verified.bytes)?;
        let is_sound = verified.findings.is_empty();
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
