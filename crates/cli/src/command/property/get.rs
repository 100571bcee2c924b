//! `larder property get`.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::find::find;
use super::known::{Known, Object};
use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::{stdout, write_name};
use crate::print::{Name, write_json};
use crate::source::PathSource;

/// Show a property, or all that are set
///
/// Examples:
///   larder property get disk.img:/home ro
///   larder property get ~/mnt/home ro
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Get {
    /// What the path stands for, if it can be several
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    object: Option<Object>,
    #[command(flatten)]
    source: PathSource,
    /// A file, directory or subvolume; the top level for the file system
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
    /// ro, label or compression
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl Get {
    pub fn run(self, global: &Global) -> Outcome {
        let bearer = find(&self.source, &self.path)?;
        let wanted = self.name.as_deref().map(Known::find).transpose()?;
        if let Some(wanted) = wanted {
            let expected = wanted.expect_of(&*bearer, self.object);
            expected.with_context(|| self.path.display().to_string())?;
        }
        let mut properties = Vec::new();
        for known in Known::ALL {
            let is_wanted = wanted.is_none_or(|wanted| wanted == known);
            if is_wanted && known.is_of(&*bearer, self.object) {
                let value = known.get(&*bearer).with_context(|| self.path.display().to_string())?;
                properties.extend(value.map(|value| (known, value)));
            }
        }
        let mut out = stdout();
        if global.is_json() {
            let properties: Vec<_> = properties.iter().map(Property::new).collect();
            write_json(&mut out, "property-get", &properties)?;
            return Ok(ExitCode::SUCCESS);
        }
        for (known, value) in properties {
            write!(out, "{}=", known.name())?;
            write_name(&mut out, value)?;
            writeln!(out)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A property as JSON.
#[derive(Serialize)]
struct Property {
    name: &'static str,
    value: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Flag(bool),
    Text(Name),
}

impl Property {
    fn new((known, value): &(Known, OsString)) -> Self {
        let value = match known {
            Known::ReadOnly => Value::Flag(value == "true"),
            Known::Label | Known::Compression => Value::Text(value.into()),
        };
        Self { name: known.name(), value }
    }
}
