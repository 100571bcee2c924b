//! `larder property`: properties of files, subvolumes and file systems.

mod get;
mod list;
mod set;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{bail, ensure};
use clap::{Subcommand, ValueEnum};
use larder::{ErrorKind, FileType, Inode, Subvolume as Tree, XattrMode};

use super::Outcome;

/// Look at properties and change them
#[derive(Debug, Subcommand)]
pub enum Property {
    Get(get::Get),
    List(list::List),
    Set(set::Set),
}

impl Property {
    pub fn run(self) -> Outcome {
        match self {
            Self::Get(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Set(command) => command.run(),
        }
    }
}

/// What can have properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Object {
    /// The file system, at the root of its top level
    #[value(alias = "f")]
    Filesystem,
    /// A subvolume, at its root
    #[value(alias = "s")]
    Subvolume,
    /// A file or directory
    #[value(alias = "i")]
    Inode,
    /// A device; it has the label of its file system
    #[value(alias = "d")]
    Device,
}

/// A property that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    ReadOnly,
    Label,
    Compression,
}

const COMPRESSION: &str = "btrfs.compression";

impl Known {
    const ALL: [Self; 3] = [Self::ReadOnly, Self::Label, Self::Compression];

    fn find(name: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|known| known.name() == name);
        found.ok_or_else(|| anyhow::anyhow!("unknown property: {name}"))
    }

    fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::Label => "label",
            Self::Compression => "compression",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only status of a subvolume",
            Self::Label => "label of the filesystem",
            Self::Compression => "compression algorithm for the file or directory",
        }
    }

    /// Whether `inode` has it, seen as `object` or as anything that it is.
    fn is_of(self, inode: &Inode, object: Option<Object>) -> bool {
        let is_subvolume = inode.is_subvolume_root();
        let is_top = is_subvolume && inode.subvolume().id() == TOP_LEVEL;
        let has_data = matches!(inode.file_type(), FileType::Regular | FileType::Directory);
        match self {
            Self::ReadOnly => {
                is_subvolume && object.is_none_or(|object| object == Object::Subvolume)
            }
            Self::Label => {
                let wanted = [Object::Filesystem, Object::Device];
                is_top && object.is_none_or(|object| wanted.contains(&object))
            }
            Self::Compression => has_data && object.is_none_or(|object| object == Object::Inode),
        }
    }

    fn expect_of(self, inode: &Inode, object: Option<Object>) -> anyhow::Result<()> {
        ensure!(
            self.is_of(inode, object),
            "object is not compatible with property: {}",
            self.name()
        );
        Ok(())
    }

    /// Its value; `None` if it is not set.
    fn get(self, inode: &Inode) -> anyhow::Result<Option<OsString>> {
        Ok(match self {
            Self::ReadOnly => Some(inode.subvolume().info()?.is_read_only.to_string().into()),
            Self::Label => Some(inode.subvolume().filesystem().label()),
            Self::Compression => match inode.xattr(COMPRESSION) {
                Err(error) if error.kind() == ErrorKind::NoSuchAttribute => None,
                value => Some(OsStr::from_bytes(&value?).to_owned()),
            },
        })
    }

    /// Gives it a value, `force` also to the subvolume that was received.
    fn set(self, inode: &Inode, value: &OsStr, force: bool) -> anyhow::Result<()> {
        match self {
            Self::ReadOnly => set_read_only(&inode.subvolume(), value, force)?,
            Self::Label => inode.subvolume().filesystem().set_label(value)?,
            Self::Compression => inode.set_xattr(COMPRESSION, value.as_bytes(), XattrMode::Any)?,
        }
        Ok(())
    }
}

/// Id of the top level.
const TOP_LEVEL: u64 = 5;

fn set_read_only(subvolume: &Tree, value: &OsStr, force: bool) -> anyhow::Result<()> {
    let is_read_only = match value.as_bytes() {
        b"true" => true,
        b"false" => false,
        _ => bail!("invalid value for property: {}", value.display()),
    };
    let info = subvolume.info()?;
    let is_received = !info.received_uuid.is_nil();
    ensure!(
        is_read_only || !info.is_read_only || !is_received || force,
        "cannot flip ro->rw with received_uuid set, use force option -f if you really want to"
    );
    Ok(subvolume.set_read_only(is_read_only)?)
}
