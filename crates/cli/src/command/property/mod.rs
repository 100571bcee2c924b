//! `larder property`: properties of files, subvolumes and file systems.

mod get;
mod list;
mod mounted;
mod set;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{bail, ensure};
use clap::{Subcommand, ValueEnum};
use larder::{ErrorKind, FileType, Inode, Timestamp, Uuid, XattrMode};

use super::Outcome;
use crate::global::Global;
use crate::source::PathSource;

/// Look at properties and change them
#[derive(Debug, Subcommand)]
pub enum Property {
    Get(get::Get),
    List(list::List),
    Set(set::Set),
}

impl Property {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Get(command) => command.run(global),
            Self::List(command) => command.run(global),
            Self::Set(command) => command.run(),
        }
    }
}

/// The objects that can have properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Object {
    /// The file system, at the root of its top level
    #[value(alias = "f")]
    Filesystem,
    /// A subvolume, at its root
    #[value(aliases = ["subvol", "s"])]
    Subvolume,
    /// A file or directory
    #[value(alias = "i")]
    Inode,
    /// A device; it has the label of its file system
    #[value(alias = "d")]
    Device,
}

/// A property.
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
        let known = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| anyhow::anyhow!("unknown property: {name}; there are {}", known()))
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

    /// Whether `bearer` has it. As btrfs-progs does, this takes the caller's word for the type.
    fn is_of(self, bearer: &dyn Bearer, object: Option<Object>) -> bool {
        if let Some(object) = object {
            return self.types().contains(&object);
        }
        match self {
            Self::ReadOnly => bearer.is_subvolume_root(),
            Self::Label => bearer.is_subvolume_root() && bearer.is_in_top_level(),
            Self::Compression => bearer.has_data(),
        }
    }

    /// The types of objects that can have it.
    fn types(self) -> &'static [Object] {
        match self {
            Self::ReadOnly => &[Object::Subvolume],
            Self::Label => &[Object::Filesystem, Object::Device],
            Self::Compression => &[Object::Inode],
        }
    }

    fn expect_of(self, bearer: &dyn Bearer, object: Option<Object>) -> anyhow::Result<()> {
        ensure!(
            self.is_of(bearer, object),
            "object is not compatible with property: {}",
            self.name()
        );
        Ok(())
    }

    /// Its value; `None` if it is not set.
    fn get(self, bearer: &dyn Bearer) -> anyhow::Result<Option<OsString>> {
        Ok(match self {
            Self::ReadOnly => Some(bearer.subvolume()?.is_read_only.to_string().into()),
            Self::Label => Some(bearer.label()?),
            Self::Compression => bearer.compression()?,
        })
    }

    /// Sets its value, with `force` also for a received subvolume.
    fn set(self, bearer: &dyn Bearer, value: &OsStr, force: bool) -> anyhow::Result<()> {
        match self {
            Self::ReadOnly => set_read_only(bearer, value, force),
            Self::Label => bearer.set_label(value),
            Self::Compression => bearer.set_compression(value),
        }
    }
}

/// An inode that can have properties, in an image or in a mounted file system.
trait Bearer {
    fn is_subvolume_root(&self) -> bool;
    fn is_in_top_level(&self) -> bool;
    /// Whether it is a regular file or a directory.
    fn has_data(&self) -> bool;
    /// The flags of the subvolume whose root it is.
    fn subvolume(&self) -> anyhow::Result<State>;
    fn set_read_only(&self, is_read_only: bool) -> anyhow::Result<()>;
    /// Removes the uuid that the subvolume was received from: it differs from that one now.
    fn forget_received(&self) -> anyhow::Result<()>;
    fn label(&self) -> anyhow::Result<OsString>;
    fn set_label(&self, label: &OsStr) -> anyhow::Result<()>;
    fn compression(&self) -> anyhow::Result<Option<OsString>>;
    fn set_compression(&self, compression: &OsStr) -> anyhow::Result<()>;
}

/// The flags of a subvolume, as far as properties need them.
struct State {
    is_read_only: bool,
    is_received: bool,
}

impl Bearer for Inode {
    fn is_subvolume_root(&self) -> bool {
        self.is_subvolume_root()
    }

    fn is_in_top_level(&self) -> bool {
        self.subvolume_id() == TOP_LEVEL
    }

    fn has_data(&self) -> bool {
        matches!(self.file_type(), FileType::Regular | FileType::Directory)
    }

    fn subvolume(&self) -> anyhow::Result<State> {
        ensure!(self.is_subvolume_root(), "no subvolume");
        let info = self.subvolume().info()?;
        let is_received = !info.received_uuid.is_nil();
        Ok(State { is_read_only: info.is_read_only, is_received })
    }

    fn set_read_only(&self, is_read_only: bool) -> anyhow::Result<()> {
        Ok(self.subvolume().set_read_only(is_read_only)?)
    }

    fn forget_received(&self) -> anyhow::Result<()> {
        self.subvolume().set_received(Uuid::nil(), 0, Timestamp::default())?;
        Ok(())
    }

    fn label(&self) -> anyhow::Result<OsString> {
        Ok(self.subvolume().filesystem().label())
    }

    fn set_label(&self, label: &OsStr) -> anyhow::Result<()> {
        Ok(self.subvolume().filesystem().set_label(label)?)
    }

    fn compression(&self) -> anyhow::Result<Option<OsString>> {
        match self.xattr(COMPRESSION) {
            Err(error) if error.kind() == ErrorKind::NoSuchAttribute => Ok(None),
            value => Ok(Some(OsStr::from_bytes(&value?).to_owned())),
        }
    }

    fn set_compression(&self, compression: &OsStr) -> anyhow::Result<()> {
        Ok(self.set_xattr(COMPRESSION, compression.as_bytes(), XattrMode::Any)?)
    }
}

/// The inode of `text`.
fn find(source: &PathSource, text: &OsStr) -> anyhow::Result<Box<dyn Bearer>> {
    Ok(match source.mounted_path(text)? {
        Some(path) => Box::new(mounted::Mounted::open(path)?),
        None => Box::new(source.find(text, true)?),
    })
}

/// Id of the top level.
const TOP_LEVEL: u64 = 5;

fn set_read_only(bearer: &dyn Bearer, value: &OsStr, force: bool) -> anyhow::Result<()> {
    let is_read_only = match value.as_bytes() {
        b"true" => true,
        b"false" => false,
        _ => bail!("invalid value for property: {}", value.display()),
    };
    let before = bearer.subvolume()?;
    if is_read_only && before.is_read_only {
        return Ok(());
    }
    let ends_a_chain = before.is_read_only && before.is_received;
    ensure!(
        !ends_a_chain || force,
        "cannot flip ro->rw with received_uuid set, use force option -f if you really want to unset \
         the read-only status: the received_uuid, which increments are received by, goes away. A \
         snapshot of it can be changed, and leaves it as it is"
    );
    if !before.is_read_only && before.is_received {
        eprintln!("WARNING: read-write subvolume with received_uuid, this is bad");
    }
    bearer.set_read_only(is_read_only)?;
    if ends_a_chain {
        bearer.forget_received()?;
    }
    Ok(())
}
