//! From entries of the source to items and data: the work of the threads that read, compress and
//! checksum.
//!
//! A [`Job`] is some inodes, or a part of a large file. A worker turns it into an [`Output`], whose
//! records are in the order of the subvolume's keys and do not depend on addresses.
//! [`crate::populate`] assigns those as it takes over outputs in order. So the result does not
//! depend on the number of threads.

mod attributes;
mod directory;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod file;
mod job;
mod names;
mod output;
mod pipeline;
mod ranges;
#[cfg(target_os = "linux")]
mod status;
mod worker;
#[cfg(target_os = "linux")]
mod xattr;

pub(crate) use attributes::Attributes;
pub(crate) use directory::directory_items;
#[cfg(not(target_os = "linux"))]
use elsewhere::{OpenFile, Opener, XattrReader, XattrSource};
#[cfg(target_os = "linux")]
use file::{OpenFile, Opener};
pub(crate) use job::Jobs;
pub(crate) use names::root_reference;
pub(crate) use output::{BufferPool, Output, Piece, Record};
pub(crate) use pipeline::ordered;
pub(crate) use worker::Worker;
#[cfg(target_os = "linux")]
use xattr::{XattrReader, XattrSource};

use crate::settings::Settings;
use crate::source::Subvolume;

/// Most bytes of data in one output: the size of reads and writes.
pub(crate) const SEGMENT_BYTES: usize = 1024 * 1024;

/// The state that all workers on a subvolume share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) subvolume: &'a Subvolume,
    pub(crate) buffers: &'a BufferPool,
}
