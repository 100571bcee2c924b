//! Where a file system is in the images that a command is given.

use std::path::{Path, PathBuf};

use clap::Args;
use larder::device::Place;

use larder_objects::parse_size;

/// Options that choose a part of an image. They are for all images of a file system.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct PlaceOptions {
    /// The partition that the file system is in, if the image or disk has a partition table; unless
    /// given, the only one with btrfs
    #[arg(long, value_name = "N", conflicts_with = "offset", value_parser = parse_partition)]
    partition: Option<u32>,
    /// The byte of the image or disk at which the file system begins
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    offset: Option<u64>,
}

impl PlaceOptions {
    /// The chosen place.
    pub fn place(self) -> Place {
        match (self.partition, self.offset) {
            (Some(number), _) => Place::Partition(number),
            (None, Some(offset)) => Place::Offset(offset),
            (None, None) => Place::Found,
        }
    }

    /// Whether one was chosen.
    pub fn is_given(self) -> bool {
        self.place() != Place::Found
    }
}

/// Reads the number of a partition.
pub fn parse_partition(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("'{text}' is not the number of a partition: they begin at 1"))
}

/// What other programs see in use while the file system at `place` of `paths` is: the nodes of
/// partitions, where the kernel knows them.
pub fn located(paths: &[impl AsRef<Path>], place: Place) -> Vec<PathBuf> {
    paths.iter().map(|path| larder_image::locate(path.as_ref(), place).0).collect()
}
