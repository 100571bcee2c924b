//! `larder receive`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use jiff::tz::TimeZone;

use super::Outcome;

/// Show what a stream of btrfs send or larder send says
///
/// Example: larder receive --dump -f monday.stream
#[derive(Debug, Args)]
pub struct Receive {
    /// Show each command of the stream and change nothing
    #[arg(long, required = true)]
    dump: bool,
    /// Read the stream from this file and not from standard input
    #[arg(short, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Receive {
    pub fn run(self) -> Outcome {
        let input: Box<dyn Read> = match &self.file {
            Some(path) => Box::new(File::open(path).with_context(|| path.display().to_string())?),
            None => Box::new(io::stdin().lock()),
        };
        let out = io::BufWriter::new(io::stdout().lock());
        larder_stream::dump(BufReader::with_capacity(1 << 20, input), out, &TimeZone::system())?;
        Ok(ExitCode::SUCCESS)
    }
}
