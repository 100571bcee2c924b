//! `larder objects`: file systems on object storage, below the file system.

mod clone;
mod delete;
mod gc;
mod info;
mod key;
mod rebuild;
mod requests;
mod rollback;
mod states;
mod verify;

use clap::Subcommand;

pub use requests::write_requests;

use crate::global::Global;
use crate::outcome::Outcome;

/// Look after the objects of a file system on object storage
///
/// A URL leads there: s3://BUCKET/PREFIX, gs://, az://, file:///DIRECTORY, and https:// for reading;
/// or the path of a directory.
/// Credentials and endpoint come from the environment, by the names that the tools of each service
/// use: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT or AWS_ENDPOINT_URL,
/// AWS_ALLOW_HTTP; GOOGLE_…; AZURE_…. For S3 also from ~/.aws/credentials and ~/.aws/config.
///
/// LARDER_CACHE and LARDER_CACHE_SIZE (4G) say where and how much of what was fetched is kept on this
/// machine, and LARDER_PATIENCE (5m; for ever for what is written and only in memory) how long
/// requests that fail for now are repeated. --stats before the command tells how many requests it
/// made. LARDER_KEY_FILE, LARDER_KEY_COMMAND or LARDER_KEY give the key of what is encrypted, and
/// LARDER_STORAGE_CLASS the class of new objects that hold content.
#[derive(Debug, Subcommand)]
#[command(verbatim_doc_comment)]
pub enum Objects {
    Clone(clone::Clone),
    Delete(delete::Delete),
    Gc(gc::Gc),
    Info(info::Info),
    Rebuild(rebuild::Rebuild),
    Rollback(rollback::Rollback),
    #[command(subcommand)]
    Key(key::Key),
    States(states::States),
    Verify(verify::Verify),
}

impl Objects {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Clone(command) => command.run(),
            Self::Delete(command) => command.run(global),
            Self::Gc(command) => command.run(global),
            Self::Info(command) => command.run(global),
            Self::Rebuild(command) => command.run(),
            Self::Rollback(command) => command.run(),
            Self::Key(command) => command.run(global),
            Self::States(command) => command.run(global),
            Self::Verify(command) => command.run(),
        }
    }
}
