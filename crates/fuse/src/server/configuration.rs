//! What a mount is told to be: at a remount, and as a further mount.

use std::path::PathBuf;

use larder::{Filesystem, OpenOptions, Subvolume};

use crate::options::{MountOptions, ServerOptions};

/// What a mount is to be from now on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How to open the devices.
    pub open: OpenOptions,
    /// Nothing can be changed.
    pub read_only: bool,
    /// All devices.
    pub devices: Vec<PathBuf>,
    /// How to serve.
    pub server: ServerOptions,
}

/// Reads lists of mount options, the last of which is that of a remount. An error is for who asked.
pub type ReadOptions = dyn Fn(&[String]) -> Result<Settings, String> + Send + Sync;

/// What a further mount is to be.
#[derive(Debug)]
pub struct FurtherMount {
    /// What to show.
    pub subvolume: Subvolume,
    /// Of these those count that each mount has for itself.
    pub options: MountOptions,
    /// Of these the times of last access count, which are those of all mounts.
    pub server: ServerOptions,
    /// Words that ask for something which is so for all mounts, and is otherwise.
    pub ignored: Vec<String>,
}

/// Reads the options `words` of a further mount of a file system that was mounted, and remounted, with the
/// lists `said`. An error is for who asked.
pub type ReadFurther =
    dyn Fn(&Filesystem, &[String], &str) -> Result<FurtherMount, String> + Send + Sync;

/// Where a remount begins.
pub(super) struct Configuration {
    pub(super) read: Box<ReadOptions>,
    pub(super) read_further: Box<ReadFurther>,
    /// All that was said so far.
    pub(super) said: Vec<String>,
}
