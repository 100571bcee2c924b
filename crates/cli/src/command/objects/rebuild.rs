//! `larder objects rebuild`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larder_objects::{Address, rebuild};

use crate::objects::{parse_address, store};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::unsigned_local_time;

/// Write the manifest of a file system anew, after it was damaged or lost
///
/// The file system is then as its last flush left it. This ends the writing of a mount that still has
/// it open, and changes nothing else; 'larder objects verify' shows whether more is damaged.
///
/// Example: larder objects rebuild s3://bucket/photos
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Rebuild {
    /// Where the file system is
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

impl Rebuild {
    pub fn run(self) -> Outcome {
        let store = store(&self.address)?;
        let state = rebuild(&*store)?;
        let (name, time) = (store.name(), unsigned_local_time(state.time));
        writeln!(stdout(), "{name}: there again, with state {} of {time}", state.number)?;
        Ok(ExitCode::SUCCESS)
    }
}
