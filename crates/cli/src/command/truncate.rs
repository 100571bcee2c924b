//! `larder truncate`.

use std::ffi::OsString;

use anyhow::Context;
use clap::Args;
use larder::ErrorKind;

use crate::outcome::Outcome;
use crate::source::{PathSource, Writing};
use larder_objects::parse_size;

/// Make files of a file system that is not mounted shorter or longer
///
/// Data that is cut off is lost; a file grows by a hole. A missing file is made.
///
/// Examples:
///   larder truncate -s 0 disk.img:/var/log/messages
///   larder truncate -s +1G disk.img:/var/lib/disk
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Truncate {
    /// Bytes, or with k, m, g, ... after it of their powers of 1024. Before it: + to add, - to
    /// take, < for at most, > for at least, / and % to round down and up to a multiple
    #[arg(short, long, value_parser = Size::parse, allow_hyphen_values = true)]
    size: Size,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    #[command(flatten)]
    source: PathSource,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    paths: Vec<OsString>,
}

/// Permissions of a new file, before the umask.
const PERMISSIONS: u32 = 0o666;

#[derive(Clone, Copy, Debug)]
struct Size {
    relation: Relation,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Relation {
    Exactly,
    More,
    Less,
    AtMost,
    AtLeast,
    RoundDown,
    RoundUp,
}

impl Size {
    fn parse(text: &str) -> Result<Self, String> {
        use Relation::{AtLeast, AtMost, Exactly, Less, More, RoundDown, RoundUp};
        let relations = [
            ('+', More),
            ('-', Less),
            ('<', AtMost),
            ('>', AtLeast),
            ('/', RoundDown),
            ('%', RoundUp),
        ];
        let found = relations.into_iter().find(|(sign, _)| text.starts_with(*sign));
        let (relation, number) =
            found.map_or((Exactly, text), |(_, relation)| (relation, &text[1..]));
        let bytes = parse_size(number)?;
        if bytes == 0 && matches!(relation, RoundDown | RoundUp) {
            return Err("there are no multiples of 0".into());
        }
        Ok(Self { relation, bytes })
    }

    /// The new size of a file that has `before` bytes; `None` if it is too large for any number.
    fn apply(self, before: u64) -> Option<u64> {
        let bytes = self.bytes;
        match self.relation {
            Relation::Exactly => Some(bytes),
            Relation::More => before.checked_add(bytes),
            Relation::Less => Some(before.saturating_sub(bytes)),
            Relation::AtMost => Some(before.min(bytes)),
            Relation::AtLeast => Some(before.max(bytes)),
            Relation::RoundDown => Some(before - before % bytes),
            Relation::RoundUp => before.checked_next_multiple_of(bytes),
        }
    }
}

impl Truncate {
    pub fn run(self) -> Outcome {
        self.source.change(&self.paths[0], |writing| self.set_sizes(writing).map(|()| 0))
    }

    fn set_sizes(&self, writing: &Writing) -> anyhow::Result<()> {
        for text in &self.paths {
            let path = writing.path(text)?;
            let file = match writing.start.open_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if self.no_create {
                        continue;
                    }
                    writing.create_file(&path, PERMISSIONS)?
                }
                opened => opened?,
            };
            let named = || text.display().to_string();
            let len_bytes = self.size.apply(file.len_bytes()).context("File too large");
            file.set_len(len_bytes.with_context(named)?).with_context(named)?;
        }
        Ok(())
    }
}
