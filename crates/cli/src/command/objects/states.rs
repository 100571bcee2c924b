//! `larder objects states`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larder_objects::Address;
use serde::Serialize;

use crate::global::Global;
use crate::objects::{parse_address, store};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::JsonList;
use crate::print::unsigned_local_time;

/// List the states that can be read, and until when
///
/// Every commit and every fsync makes one. URL@NUMBER is the file system as it was then; URL@TIME is
/// the last state that was made by that time: @yesterday, @3h, @2026-11-24, @2026-11-24T16:00.
///
/// States are thinned out, as `larder objects gc --keep` says, whenever somebody writes. The time at
/// which that ends a state is there, too; the last one ends with later ones. What somebody reads
/// stays for longer: `larder objects info` lists leases.
///
/// Examples:
///   larder objects states s3://bucket/photos
///   larder ls -l s3://bucket/photos@yesterday:/2024
///   larder mount -o ro s3://bucket/photos@3h ~/before
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct States {
    /// Where the file system is
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

#[derive(Serialize)]
struct Object {
    number: u64,
    time: u64,
    /// None: as long as it is the last one.
    until: Option<u64>,
}

impl States {
    pub fn run(self, global: &Global) -> Outcome {
        let info = larder_objects::info(&*store(&self.address)?)?;
        let ends = info.policy.ends(&info.states);
        let states = info.states.into_iter().zip(ends);
        let mut out = stdout();
        if global.is_json() {
            let mut list = JsonList::new("states");
            for (state, until) in states {
                let object = Object { number: state.number, time: state.time, until };
                list.push(&mut out, &object)?;
            }
            list.end_with(&mut out, &[])?;
        } else {
            for (state, until) in states {
                let until = until.map_or_else(|| "a later one".to_owned(), unsigned_local_time);
                writeln!(
                    out,
                    "{:>10}  {}  until {until}",
                    state.number,
                    unsigned_local_time(state.time)
                )?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
