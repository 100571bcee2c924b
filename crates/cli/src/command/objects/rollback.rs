//! `larder objects rollback`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use larder_objects::{Address, ObjectDevice};

use crate::objects::parse_address_with_state;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::unsigned_local_time;

/// Make an earlier state of a file system the newest again
///
/// All of the file system is then as it was, with all subvolumes. The states in between stay kept as
/// long as others, so that this can be taken back in the same way. It takes a moment.
///
/// Examples:
///   larder objects states s3://bucket/photos
///   larder objects rollback s3://bucket/photos@yesterday
///   larder objects rollback s3://bucket/photos@117
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Rollback {
    /// Take over from a mount that writes, on this machine or another: it can write no more
    #[arg(long)]
    take_over: bool,
    /// The file system, and the state: it must not be in use
    #[arg(value_name = "URL@STATE", value_parser = parse_address_with_state)]
    address: Address,
}

impl Rollback {
    pub fn run(self) -> Outcome {
        let (store, options) = self.address.connect()?;
        let name = store.name().to_owned();
        let Some(to) = &self.address.state else {
            bail!(
                "{name}: say which state, such as {name}@yesterday; 'larder objects states' lists them"
            );
        };
        let open = if self.take_over { ObjectDevice::open } else { ObjectDevice::open_closed };
        let state = open(store, &options)?.roll_back(to)?;
        let time = unsigned_local_time(state.time);
        writeln!(stdout(), "{name}: it is as it was; that is state {} of {time}", state.number)?;
        Ok(ExitCode::SUCCESS)
    }
}
