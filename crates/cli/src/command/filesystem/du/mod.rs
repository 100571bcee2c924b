//! `larder filesystem du`.

mod image;
mod mounted;
mod summable;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use larder::accounting::RangeUnion;

use self::image::Unmounted;
use self::mounted::Mounted;
use self::summable::Summable;
use crate::global::{Format, Global};
use crate::interrupt;
use crate::message::{is_broken_pipe, message};
use crate::outcome::{Outcome, exit_code};
use crate::output::{Stdout, stdout, write_name};
use crate::print::{Fields, JsonList};
use crate::source::{Source, on_image};
use crate::target::Target;
use crate::units::LongUnits;

/// Show how much space files take, and how much of it they share
///
/// Total is what a file refers to, Exclusive the part that no other file refers to, in any
/// subvolume. Set shared counts what the files below an argument share, with each other or with
/// others, once. A part of a long extent counts as shared if any part of that is. Compressed data
/// counts with its length in the file; inline data does not count.
///
/// Examples:
///   larder filesystem du -s ~/mnt/home ~/mnt/snapshots/*
///   larder filesystem du --raw disk.img:/home
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Du {
    /// Show only the arguments, not what is below them
    #[arg(short, long)]
    summarize: bool,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    source: Source,
    /// Files and directories, in an image by their paths from the top level, or in a file system
    /// that is mounted
    #[arg(required = true, value_name = "IMAGE:/PATH or PATH")]
    paths: Vec<OsString>,
}

/// Bytes of a file, or of all below a directory.
#[derive(Clone, Copy, Default)]
struct Sum {
    total: u64,
    shared: u64,
}

/// A directory whose content is being counted.
struct Frame<N> {
    path: PathBuf,
    children: std::vec::IntoIter<(OsString, anyhow::Result<N>)>,
    sum: Sum,
}

/// The results so far, and where they go.
struct Report<'a> {
    command: &'a Du,
    out: io::BufWriter<Stdout>,
    json: Option<JsonList>,
    failures: usize,
    /// Below the present argument: the data that is shared, and the inodes that have other names
    /// which the walk may meet.
    shared: RangeUnion,
    met: HashSet<(u64, u64)>,
}

impl Du {
    pub fn run(self, global: &Global) -> Outcome {
        interrupt::watch()?;
        let mut out = io::BufWriter::new(stdout());
        let json = match global.format {
            Format::Json => Some(JsonList::new("filesystem-du")),
            Format::Text => {
                let [total, exclusive, shared] = ["Total", "Exclusive", "Set shared"];
                writeln!(out, "{total:>10}  {exclusive:>10}  {shared:>10}  Filename")?;
                None
            }
        };
        let (shared, met) = (RangeUnion::default(), HashSet::new());
        let mut report = Report { command: &self, out, json, failures: 0, shared, met };
        for text in &self.paths {
            report.begin_argument();
            let counted = self.count(text, &mut report);
            report.note_failure(counted)?;
        }
        let Report { mut out, json, failures, .. } = report;
        if let Some(json) = json {
            json.end_with(&mut out, &[])?;
        }
        out.flush()?;
        Ok(exit_code(failures))
    }

    fn count(&self, text: &OsStr, report: &mut Report<'_>) -> anyhow::Result<()> {
        let path = Path::new(text);
        if path.metadata().is_ok_and(|metadata| is_special(&metadata)) {
            // It takes no space.
            return Ok(());
        }
        if let Some(path) = self.source.mounted_path(text)? {
            return report.count(path.into(), Mounted::open(path)?);
        }
        let target = Target::parse(text);
        let filesystem = self.source.open(&target.image)?;
        let found = filesystem.subvolume("/")?.resolve(target.path_os());
        let inode = found.with_context(|| on_image(&target.image))?;
        report.count(text.into(), Unmounted::new(filesystem, inode)?)
    }
}

impl Report<'_> {
    fn begin_argument(&mut self) {
        self.shared = RangeUnion::default();
        self.met.clear();
    }

    /// Reports an error, unless no more output can be written or a signal came.
    fn note_failure(&mut self, result: anyhow::Result<()>) -> anyhow::Result<()> {
        let Err(error) = result else { return Ok(()) };
        interrupt::check()?;
        if is_broken_pipe(&error) {
            return Err(error);
        }
        self.failures += 1;
        self.out.flush()?;
        eprintln!("ERROR: {}", message(&error));
        Ok(())
    }

    /// Counts an argument and all that is below it.
    fn count<N: Summable>(&mut self, path: PathBuf, node: N) -> anyhow::Result<()> {
        let mut frames: Vec<Frame<N>> = Vec::new();
        let mut ended = self.enter(&mut frames, path, &node)?;
        drop(node);
        loop {
            interrupt::check()?;
            if let Some((path, sum)) = ended.take() {
                match frames.last_mut() {
                    Some(frame) => {
                        frame.sum.total += sum.total;
                        frame.sum.shared += sum.shared;
                        if !self.command.summarize {
                            self.write(&path, sum, None)?;
                        }
                    }
                    None => {
                        let shared = mem::take(&mut self.shared).sum()?;
                        return self.write(&path, sum, Some(shared));
                    }
                }
            }
            let Some(frame) = frames.last_mut() else { return Ok(()) };
            let Some((name, child)) = frame.children.next() else {
                ended = frames.pop().map(|frame| (frame.path, frame.sum));
                continue;
            };
            let path = frame.path.join(name);
            let counted = child.and_then(|child| self.enter(&mut frames, path, &child));
            match counted {
                Ok(counted) => ended = counted,
                Err(error) => self.note_failure(Err(error))?,
            }
        }
    }

    /// Counts a file, or begins a directory. Returns what is complete.
    fn enter<N: Summable>(
        &mut self,
        frames: &mut Vec<Frame<N>>,
        path: PathBuf,
        node: &N,
    ) -> anyhow::Result<Option<(PathBuf, Sum)>> {
        if node.is_directory() {
            let children = node.children().with_context(|| path.display().to_string())?;
            frames.push(Frame { path, children: children.into_iter(), sum: Sum::default() });
            return Ok(None);
        }
        if !node.is_file() || (node.has_several_names() && !self.met.insert(node.id())) {
            return Ok(None);
        }
        let (mut sum, shared) = (Sum::default(), &mut self.shared);
        let counted = node.extents(&mut |used| {
            sum.total += used.len_bytes;
            if used.is_shared {
                sum.shared += used.len_bytes;
                shared.add(used.address..used.address.saturating_add(used.len_bytes))?;
            }
            Ok(())
        });
        counted.with_context(|| path.display().to_string())?;
        Ok(Some((path, sum)))
    }

    fn write(&mut self, path: &Path, sum: Sum, set: Option<u64>) -> anyhow::Result<()> {
        let exclusive = sum.total - sum.shared;
        if let Some(json) = &mut self.json {
            let mut fields: Fields =
                vec![("total", sum.total.to_string()), ("exclusive", exclusive.to_string())];
            fields.extend(set.map(|set| ("set-shared", set.to_string())));
            fields.push(("path", path.to_string_lossy().into_owned()));
            return Ok(json.add(&mut self.out, &fields)?);
        }
        let show = |bytes| self.command.units.0.show(bytes);
        let set = set.map_or("-".into(), show);
        let (total, exclusive) = (show(sum.total), show(exclusive));
        write!(self.out, "{total:>10}  {exclusive:>10}  {set:>10}  ")?;
        write_name(&mut self.out, path)?;
        Ok(writeln!(self.out)?)
    }
}

/// Whether it is a pipe, a socket or a character device. A block device may be an image.
fn is_special(metadata: &Metadata) -> bool {
    let file_type = metadata.file_type();
    file_type.is_fifo() || file_type.is_socket() || file_type.is_char_device()
}
