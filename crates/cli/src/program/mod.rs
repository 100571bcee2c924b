//! The programs that this one can be called as: `larder`, and those of btrfs-progs.
//!
//! The name of the program decides, so a link is enough. Called by a name of btrfs-progs, the
//! [command line](crate::command_line) is that of that program, and so are exit codes; what it does
//! is what `larder` does.

mod mount_helper;

use std::ffi::OsString;
use std::path::Path;

use self::mount_helper::{HELPER_NAMES, run_as_helper};

/// The program that this process was called as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Larder,
    /// `btrfs`, and `btrfsck`, which is `btrfs check`.
    Btrfs,
    /// `mkfs.btrfs`: one command of `larder`, without the word for it.
    Mkfs,
    /// `fsck.btrfs`.
    Fsck,
    /// A program that only says that it is missing.
    Missing(&'static str),
}

/// All names except `larder`.
const NAMES: [(&str, Program); 8] = [
    ("btrfs", Program::Btrfs),
    ("btrfsck", Program::Btrfs),
    ("mkfs.btrfs", Program::Mkfs),
    ("fsck.btrfs", Program::Fsck),
    ("btrfstune", Program::Missing("btrfstune")),
    ("btrfs-image", Program::Missing("btrfs-image")),
    ("btrfs-map-logical", Program::Missing("btrfs-map-logical")),
    ("btrfs-find-root", Program::Missing("btrfs-find-root")),
];

/// What `larder --version` prints after the name.
pub const LARDER_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:      ",
    env!("LARDER_COMMIT"),
    "\ntarget:      ",
    env!("LARDER_TARGET"),
    "\nchecksums:   crc32c, xxhash, sha256, blake2",
    "\ncompression: zlib, lzo, zstd",
    "\nmount:       FUSE, over /dev/fuse or io_uring",
);
/// After the names of the other programs, the release of btrfs-progs that they follow, which scripts
/// look for.
const BTRFS_VERSION: &str = concat!("v6.2\nlarder ", env!("CARGO_PKG_VERSION"));
const MKFS_VERSION: &str = concat!("part of btrfs-progs v6.2\nlarder ", env!("CARGO_PKG_VERSION"));

impl Program {
    /// The names that a link can have, of those programs that do their work.
    pub fn linked_names() -> impl Iterator<Item = &'static str> {
        let working = NAMES.into_iter().filter(|(_, program)| !matches!(program, Self::Missing(_)));
        working.map(|(name, _)| name).chain(HELPER_NAMES)
    }

    /// The program that the first of `arguments` names, and the command line that it reads.
    pub fn called_as(arguments: Vec<OsString>) -> (Self, Vec<OsString>) {
        if let Some(translated) = run_as_helper(&arguments) {
            return (Self::Larder, translated);
        }
        let path = arguments.first().map(Path::new);
        let name = path.and_then(Path::file_name).and_then(|name| name.to_str());
        let called = NAMES.into_iter().find(|(known, _)| Some(*known) == name);
        let (name, program) = called.unwrap_or(("larder", Self::Larder));
        match name {
            "btrfsck" => {
                let words = ["btrfs".into(), "check".into()].into_iter();
                (program, words.chain(arguments.into_iter().skip(1)).collect())
            }
            _ => (program, arguments),
        }
    }

    /// Its name before its version.
    pub fn display_name(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs-progs",
            Self::Mkfs => "mkfs.btrfs,",
            Self::Larder | Self::Fsck | Self::Missing(_) => "larder",
        }
    }

    /// What `--version` prints after its name.
    pub fn version(self) -> &'static str {
        match self {
            Self::Btrfs => BTRFS_VERSION,
            Self::Mkfs => MKFS_VERSION,
            Self::Larder | Self::Fsck | Self::Missing(_) => LARDER_VERSION,
        }
    }

    /// The exit code of a command that could not begin.
    pub fn failure_code(self) -> u8 {
        if self == Self::Larder { 2 } else { 1 }
    }
}
