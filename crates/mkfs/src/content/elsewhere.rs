//! Other systems than Linux, where a source is empty and has no files to open.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{Attributes, Context, Output};
use crate::MkfsError;
use crate::settings::Settings;
use crate::source::refused;

/// An open file or the attributes of one: there is none.
#[derive(Clone, Copy)]
pub(crate) enum Nothing {}

impl Nothing {
    pub(super) fn path(&self) -> PathBuf {
        match *self {}
    }
}

/// Refuses to open entries.
pub(super) struct Opener<'a> {
    context: Context<'a>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(context: Context<'a>) -> Self {
        Self { context }
    }

    fn refuse<T>(&self, at: u32) -> Result<T, MkfsError> {
        Err(refused(self.context.subvolume.path(at)))
    }

    pub(super) fn pin(&mut self, at: u32) -> Result<(Nothing, Nothing), MkfsError> {
        self.refuse(at)
    }

    pub(super) fn read_link(&self, _at: u32, link: &Nothing) -> Result<Vec<u8>, MkfsError> {
        match *link {}
    }

    pub(super) fn open_directory(&mut self, at: u32) -> Result<(Nothing, Nothing), MkfsError> {
        self.refuse(at)
    }

    pub(super) fn open_file(&mut self, at: u32) -> Result<OpenFile<'a>, MkfsError> {
        self.refuse(at)
    }
}

/// A file that is being copied.
pub(crate) struct OpenFile<'a> {
    #[expect(dead_code, reason = "there is none")]
    context: Context<'a>,
    pub(super) at: u32,
    pub(super) opened: Nothing,
    pub(super) status: Nothing,
    pub(super) size: u64,
    pub(super) ranges: Vec<Range<u64>>,
}

impl OpenFile<'_> {
    pub(super) fn allocated_bytes(&self) -> u64 {
        match self.opened {}
    }

    pub(super) fn read(&self, _buffer: &mut [u8], _offset: u64) -> Result<(), MkfsError> {
        match self.opened {}
    }
}

impl Attributes {
    pub(crate) fn of_source(status: &Nothing, _settings: &Settings) -> Self {
        match *status {}
    }
}

/// The source of attributes.
pub(super) enum XattrSource<'a> {
    Open(&'a Nothing),
    Path(&'a Path),
}

#[derive(Debug)]
pub(super) struct XattrReader;

impl XattrReader {
    pub(super) fn new() -> Self {
        Self
    }

    pub(super) fn add_xattrs(
        &mut self,
        source: &XattrSource<'_>,
        _path: impl Fn() -> PathBuf,
        _inode: u64,
        _settings: &Settings,
        _output: &mut Output,
    ) -> Result<(), MkfsError> {
        match source {
            XattrSource::Open(nothing) => match **nothing {},
            XattrSource::Path(path) => Err(refused(path.to_path_buf())),
        }
    }
}
