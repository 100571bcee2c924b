//! Copies of trees of files: from the host into a file system, out of it, from one subvolume into
//! another, and out of tar archives.
//!
//! - [`CopyOptions`]: a copy in one call, from any [`Source`] to any [`Destination`].
//! - [`Ingest`] reads the host, [`Extract`] and [`Transplant`] a subvolume, [`Unpack`] a tar archive.
//! - [`Destination`]: where they write. [`IntoImage`] and [`OntoHost`] are such places, and callers
//!   have others. [`Mapped`] gives copies other owners.
//! - [`Course`]: how far a copy is. It tells an observer, which may stop it.
//!
//! # Invariants
//! - Originals may be hostile, and other users may change them meanwhile: no symbolic link below the
//!   path that the caller named is followed, names that lead elsewhere are refused, and memory does
//!   not depend on what an archive claims.
//! - Nothing is made or changed through a symbolic link, except that a file in an image is
//!   overwritten through one: no link leads out of an image.
//! - Every failure is told, with the original and the copy, and counts: a call that returns success
//!   copied everything.
#![forbid(unsafe_code)]

mod archive;
mod course;
mod destination;
mod error;
mod extract;
mod host;
mod image;
mod keep;
mod mapped;
mod names;
mod options;
mod transplant;
mod tree;

pub use archive::{Unpack, acl_text};
pub use course::{Copied, Course, Event};
pub use destination::{
    ACCESS_ACL, ACL_RECORDS, Attributes, DEFAULT_ACL, Destination, Gone, NotKept,
};
pub use error::CopyError;
pub use extract::Extract;
pub use host::{BUFFER_BYTES, Ingest, OntoHost, below, give, open_to_overwrite};
pub use image::{DANGLING, IntoImage};
pub use keep::{Keep, new_inode};
pub use mapped::Mapped;
pub use names::{NO_ID, Names};
pub use options::{CopyOptions, Source};
pub use transplant::Transplant;
pub use tree::{Visited, Visitor, check_name, walk};
