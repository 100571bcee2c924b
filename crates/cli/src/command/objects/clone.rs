//! `larder objects clone`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use larder_objects::{Address, Beside, Settings, StateName, add_journal};

use crate::objects::{parse_address, parse_address_with_state, store};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::unsigned_local_time;

/// Make a writable copy of a file system that shares its objects
///
/// It takes a moment and hardly any space, however large the file system is: only what changes later,
/// on either side, takes space. Both must be in the same bucket, or directories of this machine, and
/// stay where they are. The file system may be in use: the copy begins with its last state, or with
/// the kept one that @STATE names. What the copy needs is kept as long as the copy is there. If the
/// file system is encrypted, the same keys open the copy.
///
/// Examples:
///   larder objects clone s3://bucket/photos s3://bucket/try
///   larder objects clone s3://bucket/photos@yesterday s3://bucket/rescued
///   larder objects clone --journal /ssd/photos.journal s3://bucket/photos s3://bucket/rescued
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Clone {
    /// Begin with the state that this journal of a mount goes on from, and add what it has: what fsync
    /// had made durable there, and another machine's writing left out
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// The file system, perhaps as it was: URL@STATE
    #[arg(value_name = "URL", value_parser = parse_address_with_state)]
    origin: Address,
    /// Where the copy will be. Nothing may be there
    #[arg(value_name = "NEW-URL", value_parser = parse_address)]
    clone: Address,
}

impl Clone {
    pub fn run(self) -> Outcome {
        let Self { journal, origin, clone } = &self;
        if journal.is_some() && origin.state.is_some() {
            bail!("a journal says which state it goes on from; leave out the state");
        }
        let origin_store = store(origin)?;
        let from = origin_store.name();
        let (Some(to_clone), Some(to_origin)) = (clone.way_from(origin), origin.way_from(clone))
        else {
            bail!(
                "a clone shares the objects of {from}, so it must be in the same bucket, and neither \
                 inside the other; 'larder export' and 'larder import' copy to another bucket"
            );
        };
        // What is encrypted stays so, with the same keys.
        let settings = Settings::from_environment()?;
        origin.keys(&settings)?.copy_to(&clone.keys(&settings)?)?;
        let clone_store = store(clone)?;
        let to = clone_store.name();
        let make = |state: Option<&StateName>| {
            larder_objects::clone(
                Beside { store: &*origin_store, way: &to_origin },
                Beside { store: &*clone_store, way: &to_clone },
                state,
            )
        };
        let (state, added) = match journal {
            None => (make(origin.state.as_ref())?, String::new()),
            Some(path) => {
                let (options, copy) = (clone.options(&settings), Arc::clone(&clone_store));
                let make = |state: &StateName| make(Some(state));
                let (state, flushes) = add_journal(path, &*origin_store, copy, &options, make)?;
                (state, format!(", and {flushes} flushes of {}", path.display()))
            }
        };
        let time = unsigned_local_time(state.time);
        writeln!(stdout(), "{to}: a clone of {from}, state {} of {time}{added}", state.number)?;
        Ok(ExitCode::SUCCESS)
    }
}
