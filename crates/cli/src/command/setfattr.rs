//! `larder setfattr`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use clap::Args;
use larder::XattrMode;

use crate::outcome::Outcome;
use crate::source::{PathSource, Writing};
use crate::xattr_text::decode;

/// Set or remove an extended attribute in a file system that is not mounted
///
/// Examples:
///   larder setfattr -n user.mime_type -v text/plain disk.img:/notes
///   larder setfattr -x security.capability disk.img:/bin/ping
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Setfattr {
    /// The name of the attribute to set, with its namespace
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Its value: as it stands, in double quotes with escapes, with 0x before it hexadecimal, with
    /// 0s base64; nothing unless given
    #[arg(short, long, requires = "name", allow_hyphen_values = true)]
    value: Option<OsString>,
    /// The name of the attribute to remove
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// Symbolic links themselves and not what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    source: PathSource,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Setfattr {
    pub fn run(self) -> Outcome {
        let text = self.value.as_deref().unwrap_or_default();
        let value = decode(text.as_bytes()).with_context(|| format!("'{}'", text.display()))?;
        self.source.change(&self.paths[0], |writing| self.set(writing, &value).map(|()| 0))
    }

    fn set(&self, writing: &Writing, value: &[u8]) -> anyhow::Result<()> {
        for text in &self.paths {
            let path = writing.path(text)?;
            let found = if self.no_dereference {
                writing.start.lookup(path)
            } else {
                writing.start.resolve(path)
            };
            match (&self.name, &self.remove) {
                (Some(name), _) => found?.set_xattr(name, value, XattrMode::Any),
                (_, Some(name)) => found?.remove_xattr(name),
                _ => unreachable!("one of them is required"),
            }
            .with_context(|| {
                let name = self.name.as_ref().or(self.remove.as_ref()).expect("one is given");
                format!("{}: {}", text.display(), name.display())
            })?;
        }
        Ok(())
    }
}
