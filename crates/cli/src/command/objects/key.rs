//! `larder objects key`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use larder_objects::{Address, KeySource, Keys, Settings};
use serde::Serialize;

use crate::global::Global;
use crate::objects::parse_address;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::JsonList;
use crate::print::unsigned_local_time;

/// Look after the keys of what is encrypted
///
/// LARDER_KEY_FILE names a file with the key, LARDER_KEY_COMMAND a command that prints it, or
/// LARDER_KEY is the key: a password, or random bytes. Up to 16 keys open the same objects. They
/// come and go without any other object being changed, also while the file system is mounted.
#[derive(Debug, Subcommand)]
#[command(verbatim_doc_comment)]
pub enum Key {
    Add(Add),
    Change(Change),
    List(List),
    Remove(Remove),
}

impl Key {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Add(command) => command.run(),
            Self::Change(command) => command.run(),
            Self::List(command) => command.run(global),
            Self::Remove(command) => command.run(),
        }
    }
}

/// Where a new key is.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct New {
    /// The file that holds the new key
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    /// A command for the shell that prints the new key
    #[arg(long, value_name = "COMMAND")]
    new_key_command: Option<OsString>,
}

impl New {
    fn source(self) -> KeySource {
        match (self.new_key_file, self.new_key_command) {
            (Some(path), _) => KeySource::file("--new-key-file", path),
            (None, command) => KeySource::command("--new-key-command", command.unwrap_or_default()),
        }
    }
}

/// Add a key
///
/// Example: LARDER_KEY_FILE=mine larder objects key add --new-key-file ann --name ann s3://bucket/x
#[derive(Debug, Args)]
pub struct Add {
    #[command(flatten)]
    new: New,
    /// A word that `list` shows for it. It is not encrypted
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Where the objects are
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

impl Add {
    fn run(self) -> Outcome {
        let (keys, own) = keys(&self.address)?;
        let id = keys.add(own.as_ref(), &self.new.source(), &self.name)?;
        writeln!(stdout(), "{id}")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Replace the key that is in use by another
///
/// Whoever has the old key and a copy of the object `keys` from before can still read everything.
///
/// Example: LARDER_KEY_FILE=old larder objects key change --new-key-file new s3://bucket/photos
#[derive(Debug, Args)]
pub struct Change {
    #[command(flatten)]
    new: New,
    /// Where the objects are
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

impl Change {
    fn run(self) -> Outcome {
        let (keys, own) = keys(&self.address)?;
        let id = keys.exchange(own.as_ref(), &self.new.source())?;
        writeln!(stdout(), "{id}")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Remove a key
///
/// It need not be known, but another one must be given. Whoever has the removed key and a copy of
/// the object `keys` from before can still read everything.
///
/// Example: larder objects key remove 5f2c0a91 s3://bucket/photos
#[derive(Debug, Args)]
pub struct Remove {
    /// The key's id, as `list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Where the objects are
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

impl Remove {
    fn run(self) -> Outcome {
        let (keys, own) = keys(&self.address)?;
        keys.remove(own.as_ref(), &self.id)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// List the keys
///
/// This needs no key. If one is given, a star marks it.
///
/// Example: larder objects key list s3://bucket/photos
#[derive(Debug, Args)]
pub struct List {
    /// Where the objects are
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

#[derive(Serialize)]
struct Object<'k> {
    id: &'k str,
    name: &'k str,
    created: u64,
    in_use: bool,
}

impl List {
    fn run(self, global: &Global) -> Outcome {
        let (keys, own) = keys(&self.address)?;
        let (slots, opened) = keys.list(own.as_ref())?;
        let mut out = stdout();
        let mut list = JsonList::new("keys");
        for (at, slot) in slots.iter().enumerate() {
            let in_use = opened == Some(at);
            let object = Object { id: slot.id(), name: slot.name(), created: slot.created, in_use };
            if global.is_json() {
                list.push(&mut out, &object)?;
            } else {
                let star = if in_use { '*' } else { ' ' };
                let line = format!(
                    "{star} {}  {}  {}",
                    object.id,
                    unsigned_local_time(slot.created),
                    object.name
                );
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        if global.is_json() {
            list.end_with(&mut out, &[])?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn keys(address: &Address) -> anyhow::Result<(Keys, Option<KeySource>)> {
    let settings = Settings::from_environment()?;
    Ok((address.keys(&settings)?, settings.key))
}
