//! `larder getfattr`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder::{Inode, Xattr};
use regex_lite::Regex;
use serde::Serialize;

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::{JsonList, Name};
use crate::source::PathSource;
use crate::target::Target;
use crate::xattr_text::Encoding;

/// Show extended attributes in a file system that is not mounted
///
/// Prints what getfattr prints: `setfattr --restore` reads it. As JSON, values are always there.
///
/// Example: larder getfattr -d -m - disk.img:/bin/ping
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Getfattr {
    /// Values too
    #[arg(short, long)]
    dump: bool,
    /// Only this attribute, and its value
    #[arg(short, long, conflicts_with = "pattern")]
    name: Option<OsString>,
    /// Only names that match this regular expression; - for all
    #[arg(short = 'm', long = "match", value_name = "PATTERN", default_value = r"^user\.")]
    pattern: String,
    /// How to write values: what suits each unless given
    #[arg(short, long)]
    encoding: Option<Encoding>,
    /// Values as they are, with nothing around them
    #[arg(long)]
    only_values: bool,
    /// Symbolic links themselves and not what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    source: PathSource,
    /// What to look at
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Getfattr {
    pub fn run(self, global: &Global) -> Outcome {
        let mut out = io::BufWriter::new(stdout());
        let mut json = global.is_json().then(|| JsonList::new("getfattr"));
        for text in &self.paths {
            let inode = self.source.find(text, !self.no_dereference)?;
            let xattrs = self.selected(&inode).with_context(|| text.display().to_string())?;
            if let Some(json) = &mut json {
                let xattrs = xattrs.iter().map(XattrObject::new).collect();
                json.push(&mut out, &Object { path: text.into(), xattrs })?;
            } else {
                self.show(&mut out, text, &xattrs)?;
            }
        }
        if let Some(json) = json {
            json.end_with(&mut out, &[])?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    fn selected(&self, inode: &Inode) -> anyhow::Result<Vec<Xattr>> {
        if let Some(name) = &self.name {
            let value = inode.xattr(name).with_context(|| name.display().to_string())?;
            return Ok(vec![Xattr { name: name.clone(), value }]);
        }
        let pattern = if self.pattern == "-" { "" } else { &self.pattern };
        let pattern = Regex::new(pattern).context("the pattern is no regular expression")?;
        let mut xattrs = inode.xattrs().collect::<larder::Result<Vec<Xattr>>>()?;
        xattrs.retain(|xattr| pattern.is_match(&xattr.name.to_string_lossy()));
        xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(xattrs)
    }

    fn show(&self, out: &mut impl Write, text: &OsStr, xattrs: &[Xattr]) -> io::Result<()> {
        let has_values = self.dump || self.name.is_some();
        if self.only_values {
            return xattrs.iter().try_for_each(|xattr| out.write_all(&xattr.value));
        }
        if xattrs.is_empty() {
            return Ok(());
        }
        let path = Target::parse(text).path;
        // As for an absolute path, the slash is left out.
        let shown = match path.strip_prefix(b"/") {
            Some(b"") | None => b".",
            Some(path) => path,
        };
        out.write_all(b"# file: ")?;
        out.write_all(shown)?;
        out.write_all(b"\n")?;
        for xattr in xattrs {
            out.write_all(xattr.name.as_bytes())?;
            if has_values {
                let encoding = self.encoding.unwrap_or_else(|| Encoding::that_suits(&xattr.value));
                out.write_all(b"=")?;
                out.write_all(&encoding.encode(&xattr.value))?;
            }
            out.write_all(b"\n")?;
        }
        out.write_all(b"\n")
    }
}

/// A file and its attributes as JSON.
#[derive(Serialize)]
struct Object {
    path: Name,
    xattrs: Vec<XattrObject>,
}

/// An extended attribute as JSON.
#[derive(Serialize)]
pub struct XattrObject {
    name: Name,
    value: Name,
}

impl XattrObject {
    pub fn new(xattr: &Xattr) -> Self {
        Self { name: (&xattr.name).into(), value: Name::of_bytes(&xattr.value) }
    }
}
