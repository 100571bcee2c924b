//! The operations of workloads, with all their parameters.

use std::fmt::{self, Display};
use std::iter::once;

use super::names::Name;

/// An operation on files or directories that are there, unless it makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Makes an empty file.
    Create(Name),
    /// Makes a pipe.
    MakePipe(Name),
    /// Makes an empty directory.
    MakeDirectory(Name),
    /// Removes an empty directory.
    RemoveDirectory(Name),
    /// Changes where a file has space.
    Allocate(Name, AllocateAs, Region),
    /// Writes to a file.
    Write(Name, WriteAs, Region),
    /// Makes a file a copy of another one that shares its data.
    Clone(Name, Name),
    /// Gives a file another name.
    Link(Name, Name),
    /// Makes a symbolic link, the second name, to the first.
    Symlink(Name, Name),
    /// Removes a name that no program has open.
    Unlink(Name),
    /// Removes a name while a program has the file open until the power cut.
    UnlinkOpen(Name),
    /// Renames a file or directory, over another if that is there.
    Rename(Name, Name),
    /// Two files change names.
    Exchange(Name, Name),
    /// Sets an extended attribute.
    SetXattr(Name),
    /// Removes it.
    RemoveXattr(Name),
    /// Sets the length in bytes.
    Truncate(Name, u64),
    /// Makes data durable.
    SyncData(Name),
    /// Makes an empty subvolume.
    MakeSubvolume(Name),
    /// Makes the second a snapshot of the first.
    Snapshot(Name, Name),
    /// Deletes a subvolume with all that is in it.
    DeleteSubvolume(Name),
}

/// The mode of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocateAs {
    /// Allocates, and grows the file.
    Grow,
    /// Allocates, and keeps the length.
    Keep,
    /// Zeroes, and grows the file.
    Zero,
    /// Zeroes, and keeps the length.
    ZeroKeep,
    /// Punches a hole.
    Punch,
}

/// The way of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteAs {
    /// As `write` does.
    Buffered,
    /// As with `O_DIRECT`: the data is on the device before the call returns.
    Direct,
    /// As to a mapping that is synced then.
    Mapped,
}

/// A part of a file, relative to its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// 32 KiB after the end.
    Append,
    /// So many bytes at the beginning.
    Start(u64),
    /// So many bytes at the end.
    Tail(u64),
    /// 2000 bytes at the end, and 3000 after it.
    Across,
}

const APPENDED_BYTES: u64 = 32 << 10;

impl Region {
    /// The offset and length of this part of a file of `len_bytes`.
    pub fn in_file(self, len_bytes: u64) -> (u64, u64) {
        match self {
            Self::Append => (len_bytes, APPENDED_BYTES),
            Self::Start(bytes) => (0, bytes),
            Self::Tail(bytes) => (len_bytes.saturating_sub(bytes), bytes),
            Self::Across => (len_bytes.saturating_sub(2000), 5000),
        }
    }
}

/// Parts that do not begin or end at blocks.
const UNALIGNED: [Region; 4] =
    [Region::Append, Region::Start(5000), Region::Across, Region::Tail(5000)];
const ALIGNED: [Region; 3] = [Region::Append, Region::Start(8192), Region::Tail(8192)];
const ALLOCATIONS: [AllocateAs; 5] =
    [AllocateAs::Zero, AllocateAs::ZeroKeep, AllocateAs::Punch, AllocateAs::Keep, AllocateAs::Grow];
const LENGTHS: [u64; 2] = [0, 2500];

impl Operation {
    /// Those on subvolumes, with all parameters, and some on files in them.
    pub(super) fn on_subvolumes() -> Vec<Self> {
        let [first, second] = Name::FILES_OF_S;
        vec![
            Self::MakeSubvolume(Name::S),
            Self::Snapshot(Name::S, Name::T),
            Self::DeleteSubvolume(Name::S),
            Self::DeleteSubvolume(Name::T),
            Self::Rename(Name::S, Name::T),
            Self::Create(first),
            Self::Write(first, WriteAs::Buffered, Region::Append),
            Self::Write(first, WriteAs::Buffered, Region::Start(5000)),
            Self::Link(first, second),
            Self::Rename(first, second),
            Self::Unlink(first),
            Self::Clone(first, second),
        ]
    }

    /// Those on files and directories, with all parameters.
    pub(super) fn on_files() -> Vec<Self> {
        let mut all = Vec::new();
        for file in Name::FIRST_FILES {
            all.extend([Self::Create(file), Self::MakePipe(file)]);
            for how in ALLOCATIONS {
                all.extend(UNALIGNED.map(|region| Self::Allocate(file, how, region)));
            }
            all.extend(UNALIGNED.map(|region| Self::Write(file, WriteAs::Buffered, region)));
            all.extend(ALIGNED.map(|region| Self::Write(file, WriteAs::Direct, region)));
            all.extend(ALIGNED.map(|region| Self::Write(file, WriteAs::Mapped, region)));
            all.extend(LENGTHS.map(|len_bytes| Self::Truncate(file, len_bytes)));
            all.extend([Self::SetXattr(file), Self::RemoveXattr(file), Self::SyncData(file)]);
        }
        all.extend([Self::MakeDirectory(Name::A), Self::RemoveDirectory(Name::A)]);
        all.extend(Name::files().flat_map(|file| [Self::Unlink(file), Self::UnlinkOpen(file)]));
        for from in Name::files() {
            for to in Name::SECOND_FILES.into_iter().filter(|to| *to != from) {
                let (link, clone) = (Self::Link(from, to), Self::Clone(from, to));
                all.extend([link, Self::Symlink(from, to), clone, Self::Rename(from, to)]);
                // An exchange is the same from both sides.
                let is_new = from < to || !Name::SECOND_FILES.contains(&from);
                all.extend(is_new.then_some(Self::Exchange(from, to)));
            }
        }
        all.extend(once(Self::Rename(Name::A, Name::B)));
        all
    }

    /// The files and directories that it names.
    pub(super) fn names(self) -> Vec<Name> {
        match self {
            Self::Create(name)
            | Self::MakePipe(name)
            | Self::MakeDirectory(name)
            | Self::RemoveDirectory(name)
            | Self::Allocate(name, ..)
            | Self::Write(name, ..)
            | Self::Unlink(name)
            | Self::UnlinkOpen(name)
            | Self::SetXattr(name)
            | Self::RemoveXattr(name)
            | Self::Truncate(name, _)
            | Self::SyncData(name)
            | Self::MakeSubvolume(name)
            | Self::DeleteSubvolume(name) => vec![name],
            Self::Clone(from, to)
            | Self::Link(from, to)
            | Self::Symlink(from, to)
            | Self::Rename(from, to)
            | Self::Exchange(from, to)
            | Self::Snapshot(from, to) => vec![from, to],
        }
    }

    /// It makes what it does durable by itself.
    pub(super) fn is_durable(self) -> bool {
        matches!(self, Self::SyncData(_) | Self::Write(_, WriteAs::Mapped, _))
    }
}

impl Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(name) => write!(f, "create {name}"),
            Self::MakePipe(name) => write!(f, "make pipe {name}"),
            Self::MakeDirectory(name) => write!(f, "make directory {name}"),
            Self::RemoveDirectory(name) => write!(f, "remove directory {name}"),
            Self::Allocate(name, how, region) => write!(f, "allocate {name} {how:?} {region:?}"),
            Self::Write(name, how, region) => write!(f, "write {name} {how:?} {region:?}"),
            Self::Clone(from, to) => write!(f, "clone {from} to {to}"),
            Self::Link(from, to) => write!(f, "link {from} as {to}"),
            Self::Symlink(from, to) => write!(f, "symlink to {from} as {to}"),
            Self::Unlink(name) => write!(f, "unlink {name}"),
            Self::UnlinkOpen(name) => write!(f, "unlink open {name}"),
            Self::Rename(from, to) => write!(f, "rename {from} to {to}"),
            Self::Exchange(from, to) => write!(f, "exchange {from} and {to}"),
            Self::SetXattr(name) => write!(f, "set xattr of {name}"),
            Self::RemoveXattr(name) => write!(f, "remove xattr of {name}"),
            Self::Truncate(name, len_bytes) => write!(f, "truncate {name} to {len_bytes}"),
            Self::SyncData(name) => write!(f, "sync data of {name}"),
            Self::MakeSubvolume(name) => write!(f, "make subvolume {name}"),
            Self::Snapshot(from, to) => write!(f, "snapshot {from} as {to}"),
            Self::DeleteSubvolume(name) => write!(f, "delete subvolume {name}"),
        }
    }
}
