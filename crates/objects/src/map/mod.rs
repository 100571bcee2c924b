//! Where the device's content lies in segments.
//!
//! ```text
//!   recent    a range index: what was written since the checkpoint
//!   pages     sorted extents, packed, in immutable map objects: the state at the checkpoint
//!   root      leads to one entry for each page, and one for each object with its live bytes
//! ```
//! A lookup asks the recent extents first, and pages for what they do not cover. What neither knows
//! is zeros. A checkpoint merges the recent extents into copies of the pages that they concern.

mod checkpoint;
mod extent;
mod list;
mod merge;
mod page;
mod recent;
mod root;

pub(crate) use checkpoint::{Checkpoint, NewCheckpoint};
pub(crate) use extent::{Delta, Extent, Source};
use merge::merge;
use page::Page;
pub(crate) use recent::{Place, Recent};
pub(crate) use root::{ObjectRecord, PageRef, RootRef};
