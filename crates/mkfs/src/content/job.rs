//! The work to do, in order.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use super::ranges::{Part, parts};
use super::{Context, OpenFile, Opener, SEGMENT_BYTES};
use crate::source::Kind;
use crate::{Features, MkfsError};

/// Most inodes in one job.
const MAX_INODES: u32 = 256;
/// Most parts of a file in one job.
const MAX_PARTS: usize = 1024;

/// A piece of work that fits one [`super::Output`].
pub(crate) enum Job<'a> {
    /// Entries whose data together is at most one segment.
    Nodes(Range<u32>),
    /// The items before the data of a larger file.
    LargeFile(Arc<OpenFile<'a>>),
    /// Parts of a large file whose data together is at most one segment.
    Parts(Arc<OpenFile<'a>>, Vec<Part>),
    /// A large file could not be opened.
    Failed(MkfsError),
}

/// The jobs of a subvolume. Large files are opened here, since their parts share them.
pub(crate) struct Jobs<'a> {
    context: Context<'a>,
    next: u32,
    opener: Opener<'a>,
    /// The parts of the last large file.
    parts: Option<LargeFileParts<'a>>,
}

struct LargeFileParts<'a> {
    file: Arc<OpenFile<'a>>,
    parts: Peekable<Box<dyn Iterator<Item = Part> + Send>>,
}

impl LargeFileParts<'_> {
    /// The next parts, as many as fit one job; none after the last.
    fn next_job(&mut self) -> Vec<Part> {
        let mut room = SEGMENT_BYTES as u64;
        let mut job = Vec::new();
        while job.len() < MAX_PARTS
            && let Some(part) = self.parts.next_if(|part| part.data_bytes() <= room)
        {
            room -= part.data_bytes();
            job.push(part);
        }
        job
    }
}

impl<'a> Jobs<'a> {
    pub(crate) fn new(context: Context<'a>) -> Self {
        Self { context, next: 0, opener: Opener::new(context), parts: None }
    }

    /// The most bytes of data that a node has, in whole sectors.
    fn data_bytes(&self, at: u32) -> u64 {
        let node = self.context.subvolume.node(at);
        if node.kind == Kind::File && self.context.subvolume.is_first_name(at) {
            node.size.next_multiple_of(self.context.settings.sector_size as u64)
        } else {
            0
        }
    }

    fn begin_large_file(&mut self, at: u32) -> Job<'a> {
        let file = match self.opener.open_file(at) {
            Ok(file) => Arc::new(file),
            Err(error) => return Job::Failed(error),
        };
        let parts: Box<dyn Iterator<Item = Part> + Send> =
            Box::new(file_parts(&file, self.context));
        self.parts = Some(LargeFileParts { file: Arc::clone(&file), parts: parts.peekable() });
        Job::LargeFile(file)
    }
}

/// The parts of a file.
pub(super) fn file_parts(
    file: &OpenFile<'_>,
    context: Context<'_>,
) -> impl Iterator<Item = Part> + Send + use<> {
    let explicit_holes = !context.settings.has(Features::NO_HOLES);
    let sector_size = context.settings.sector_size as u64;
    parts(file.ranges.clone(), file.size, sector_size, explicit_holes, SEGMENT_BYTES as u64)
}

impl<'a> Iterator for Jobs<'a> {
    type Item = Job<'a>;

    fn next(&mut self) -> Option<Job<'a>> {
        if let Some(large) = &mut self.parts {
            let parts = large.next_job();
            if !parts.is_empty() {
                return Some(Job::Parts(Arc::clone(&large.file), parts));
            }
            self.parts = None;
        }
        let (first, count) = (self.next, self.context.subvolume.nodes().len() as u32);
        let mut data_bytes = 0;
        while self.next < count && self.next - first < MAX_INODES {
            data_bytes += self.data_bytes(self.next);
            if data_bytes > SEGMENT_BYTES as u64 {
                break;
            }
            self.next += 1;
        }
        if self.next > first {
            return Some(Job::Nodes(first..self.next));
        }
        (first < count).then(|| {
            self.next += 1;
            self.begin_large_file(first)
        })
    }
}
