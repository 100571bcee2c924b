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

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use larder_device::Device;
use larder_objects::{
    Address, ObjectDevice, ObjectsError, Options, Policy, Settings, Store, parse_seconds,
};

pub use requests::write_requests;

use super::Outcome;
use crate::global::Global;
use crate::object_directory::url_of;
use crate::reason::in_words;
use crate::time_zone::SHOWN;

/// How long objects that no kept state needs stay for readers, by default, in seconds.
const DELETE_AFTER: u64 = 60 * 60;

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

/// Makes a disk of zeros where the URL `url` leads to, as [`create_at`] does.
pub fn create(url: &Path, len_bytes: u64, is_encrypted: bool) -> anyhow::Result<()> {
    let text = url.to_str().with_context(|| format!("{}: not UTF-8", url.display()))?;
    create_at(&text.parse()?, len_bytes, is_encrypted)
}

/// Encrypts what is written at `address` from now on. Nothing may be there that is not encrypted.
pub fn encrypt(address: &Address) -> anyhow::Result<()> {
    let settings = Settings::from_environment()?;
    Ok(address.keys(&settings)?.create(settings.key.as_ref())?)
}

/// Makes a disk of zeros at `address`. If an interrupted call has left one of that length there,
/// that one is taken.
pub fn create_at(address: &Address, len_bytes: u64, is_encrypted: bool) -> anyhow::Result<()> {
    if is_encrypted {
        encrypt(address)?;
    }
    let store = store(address)?;
    match ObjectDevice::create(&*store, len_bytes, Policy::default(), DELETE_AFTER) {
        Err(ObjectsError::Exists { .. }) if is_untouched(&store, len_bytes)? => Ok(()),
        result => Ok(result?),
    }
}

fn is_untouched(store: &Arc<dyn Store>, len_bytes: u64) -> anyhow::Result<bool> {
    let device = ObjectDevice::open_read_only(Arc::clone(store), None, &Options::default())?;
    Ok(device.len_bytes() == len_bytes && device.content_after(0)?.is_none())
}

/// The store there.
pub fn store(address: &Address) -> anyhow::Result<Arc<dyn Store>> {
    Ok(address.connect()?.0)
}

/// Reads an address, perhaps with a state: a URL, or the path of a directory.
pub fn parse_address_with_state(text: &str) -> Result<Address, String> {
    let parse = |text: &str| text.parse().map_err(|error: ObjectsError| error.to_string());
    if text.is_empty() || text.contains("://") {
        return parse(text);
    }
    // A name may contain what begins a state elsewhere.
    let (path, state) = match text.rsplit_once('@') {
        Some((path, state)) if !state.contains('/') && !Path::new(text).exists() => {
            (path, format!("@{state}"))
        }
        _ => (text, String::new()),
    };
    let url = url_of(Path::new(path)).map_err(|error| in_words(&error.to_string()))?;
    parse(&format!("{url}{state}"))
}

/// Reads an address without a state.
pub fn parse_address(text: &str) -> Result<Address, String> {
    let address = parse_address_with_state(text)?;
    match address.state {
        None => Ok(address),
        Some(_) => Err("it names a state; give the URL without '@' and what follows".to_owned()),
    }
}

fn parse_policy(text: &str) -> Result<Policy, String> {
    text.parse()
}

/// Reads an age.
pub fn parse_time(text: &str) -> Result<u64, String> {
    parse_seconds(text)
}

/// The local date and time of so many seconds since 1970.
pub fn local(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.map_or_else(
        || seconds.to_string(),
        |time| time.to_zoned(SHOWN.clone()).strftime("%F %T").to_string(),
    )
}
