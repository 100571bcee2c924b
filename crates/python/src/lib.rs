//! The module `larder._larder`: file systems as Python objects.
//!
//! What Python has types for, files that are streams and walks, is Python, in the package `larder`
//! beside this crate. Here is what it is made from: one method for each call of the library.
//!
//! # Invariants
//! - Other Python threads run during every call that reads or writes an image.
//! - Ctrl-C ends every call that can take long, and loses nothing.
//! - Only a `FileSystem` and open `File`s hold handles of the library: once these are closed,
//!   no iterator or entry keeps an image open.
//! - A forked process uses no handle of the one that it was forked from.
//! - A failure is an `OSError` with the number that a kernel would return, and the path that the
//!   caller gave.
// A test program of Rust has no Python to link with: `cargo test --lib` makes an empty one.
#![cfg(not(test))]
#![forbid(unsafe_code)]
#![expect(clippy::needless_pass_by_value, reason = "what comes from Python is a value")]

mod balance;
mod check;
#[cfg(target_os = "linux")]
mod copies;
mod devices;
mod entries;
mod error;
mod file;
mod filesystem;
mod interrupt;
mod jobs;
mod mkfs;
mod names;
mod options;
mod owned;
mod path;
mod scrub;
mod space;
mod stat;
mod stream;
mod subvolumes;
mod xattrs;

use pyo3::prelude::*;

use balance::Balanced;
use check::{CheckReport, Finding};
use devices::{Device, Moved};
use entries::{DirEntry, ScanDir};
use error::DamageError;
use file::File;
use filesystem::FileSystem;
use jobs::Job;
use mkfs::MkfsSummary;
use scrub::Scrubbed;
use space::{Extent, Space};
use stat::Stat;
use subvolumes::Subvolume;

/// The native half of the package `larder`.
#[pymodule]
fn _larder(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Balanced>()?;
    module.add_class::<CheckReport>()?;
    module.add_class::<Device>()?;
    module.add_class::<DirEntry>()?;
    module.add_class::<Extent>()?;
    module.add_class::<File>()?;
    module.add_class::<FileSystem>()?;
    module.add_class::<Finding>()?;
    module.add_class::<Job>()?;
    module.add_class::<MkfsSummary>()?;
    module.add_class::<Moved>()?;
    module.add_class::<ScanDir>()?;
    module.add_class::<Scrubbed>()?;
    module.add_class::<Space>()?;
    module.add_class::<Stat>()?;
    module.add_class::<Subvolume>()?;
    module.add("DamageError", module.py().get_type::<DamageError>())?;
    module.add_function(wrap_pyfunction!(check::check, module)?)?;
    module.add_function(wrap_pyfunction!(mkfs::mkfs, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
