//! How a mount is configured: at a remount, and as a further mount.

use std::path::PathBuf;

use larder::{Filesystem, OpenOptions, Subvolume};

use crate::options::{MountOptions, ServerOptions};

/// The configuration of a mount from now on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How to open the devices.
    pub open: OpenOptions,
    /// Refuses all changes.
    pub read_only: bool,
    /// The paths of all devices.
    pub devices: Vec<PathBuf>,
    /// How to serve.
    pub server: ServerOptions,
}

/// Reads lists of mount options, the last of which is that of a remount. An error goes to the
/// client.
pub type ReadOptions = dyn Fn(&[String]) -> Result<Settings, String> + Send + Sync;

/// How a further mount is configured.
#[derive(Debug)]
pub struct FurtherMount {
    /// The subvolume to show.
    pub subvolume: Subvolume,
    /// Only the options that each mount has for itself count.
    pub options: MountOptions,
    /// Only the access times count. All mounts share them.
    pub server: ServerOptions,
    /// Words that ask for something that all mounts share and that is set otherwise.
    pub ignored: Vec<String>,
}

/// Reads the options `words` of a further mount of a file system that was mounted, and remounted,
/// with the lists `said`. An error goes to the client.
pub type ReadFurther =
    dyn Fn(&Filesystem, &[String], &str) -> Result<FurtherMount, String> + Send + Sync;

/// What a remount starts from.
pub(super) struct Configuration {
    pub(super) read: Box<ReadOptions>,
    pub(super) read_further: Box<ReadFurther>,
    /// All lists of options so far.
    pub(super) said: Vec<String>,
}
