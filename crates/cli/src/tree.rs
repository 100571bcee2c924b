//! Walking a tree of files, as `ls -R`, `rm -r` and `tar` do.

use std::path::Path;

use anyhow::Context;
use larder::Inode;
pub use larder_copy::{Visited, Visitor};

use crate::interrupt::{self, Interrupted};
use crate::message::{is_broken_pipe, message};
use crate::progress::Progress;

/// Does one thing with every inode, with a directory before its entries, and shows the progress.
pub struct Each<F> {
    act: F,
    progress: Progress,
}

impl<F: FnMut(&Visited<'_>) -> anyhow::Result<()>> Each<F> {
    pub fn new(act: F) -> Self {
        Self { act, progress: Progress::of_files() }
    }
}

impl<F: FnMut(&Visited<'_>) -> anyhow::Result<()>> Visitor for Each<F> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        self.visit(node).map(|()| true)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        self.progress.add(1);
        (self.act)(node)
    }

    fn leave(&mut self, _: &Visited<'_>) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A visitor that a signal ends.
struct Watched<'v, V>(&'v mut V);

impl<V: Visitor> Visitor for Watched<'_, V> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        interrupt::check()?;
        self.0.enter(node)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        interrupt::check()?;
        self.0.visit(node)
    }

    fn leave(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        interrupt::check()?;
        self.0.leave(node)
    }
}

/// Walks the tree at `start`, the entries of a directory in the order of their names.
///
/// An error about `start` ends the walk. Others are reported on standard error, and the walk goes
/// on; returns how many there were. Writing to a pipe without a reader ends the walk, and so does a
/// signal that is [watched](interrupt::watch) for.
pub fn walk(start: &Inode, visitor: &mut impl Visitor) -> anyhow::Result<usize> {
    let mut has_started = false;
    let mut failures = 0;
    larder_copy::walk(start, &mut Watched(visitor), |_, path, result| {
        let is_start = !std::mem::replace(&mut has_started, true);
        let Err(error) = result else { return Ok(()) };
        if is_start || Interrupted::behind(&error).is_some() || is_broken_pipe(&error) {
            return Err(error);
        }
        let error = Err::<(), _>(error).with_context(|| shown(path)).unwrap_err();
        eprintln!("ERROR: {}", message(&error));
        failures += 1;
        Ok(())
    })?;
    Ok(failures)
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "/".into() } else { path.display().to_string() }
}
