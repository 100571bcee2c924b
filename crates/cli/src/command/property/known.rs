//! The properties, and the objects that have them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{bail, ensure};
use clap::ValueEnum;

use super::bearer::Bearer;

/// The objects that can have properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Object {
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
pub enum Known {
    ReadOnly,
    Label,
    Compression,
}

impl Known {
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::Label, Self::Compression];

    pub fn find(name: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|known| known.name() == name);
        let known = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| anyhow::anyhow!("unknown property: {name}; there are {}", known()))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::Label => "label",
            Self::Compression => "compression",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only status of a subvolume",
            Self::Label => "label of the filesystem",
            Self::Compression => "compression algorithm for the file or directory",
        }
    }

    /// Whether `bearer` has it. As btrfs-progs does, this takes the caller's word for the type.
    pub fn is_of(self, bearer: &dyn Bearer, object: Option<Object>) -> bool {
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

    pub fn expect_of(self, bearer: &dyn Bearer, object: Option<Object>) -> anyhow::Result<()> {
        ensure!(
            self.is_of(bearer, object),
            "object is not compatible with property: {}",
            self.name()
        );
        Ok(())
    }

    /// Its value; `None` if it is not set.
    pub fn get(self, bearer: &dyn Bearer) -> anyhow::Result<Option<OsString>> {
        Ok(match self {
            Self::ReadOnly => Some(bearer.subvolume()?.is_read_only.to_string().into()),
            Self::Label => Some(bearer.label()?),
            Self::Compression => bearer.compression()?,
        })
    }

    /// Sets its value, with `force` also for a received subvolume.
    pub fn set(self, bearer: &dyn Bearer, value: &OsStr, force: bool) -> anyhow::Result<()> {
        match self {
            Self::ReadOnly => set_read_only(bearer, value, force),
            Self::Label => bearer.set_label(value),
            Self::Compression => bearer.set_compression(value),
        }
    }
}

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
