//! The options of mkfs.btrfs.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use larder_format::compression::Compression;
use larder_format::item::InodeFlags;
use larder_format::{ChecksumType, OwnerMap, Profile, Uuid};
use larder_image::Place;

use crate::{FeatureChoice, MkfsError, Progress};

/// The options of mkfs.btrfs, with its defaults.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// `-f`: overwrite existing content of the devices.
    pub force: bool,
    /// Where on each device: the whole by default, also if it has partitions.
    pub place: Place,
    /// `-b`: bytes of each device, at most its length. Files are made this long.
    pub byte_count: Option<u64>,
    /// Not `-K`: discard the old content of the devices.
    pub discard: bool,
    /// `-L`: at most 255 bytes, no newline and no zero.
    pub label: String,
    /// `-n`: bytes of a tree block. By default 16 KiB or a sector, and a sector with mixed groups.
    pub node_size_bytes: Option<u32>,
    /// `-s`: bytes of a sector.
    pub sector_size_bytes: u32,
    /// `-d`: by default single.
    pub data_profile: Option<Profile>,
    /// `-m`: by default DUP on one device, RAID1 on several, single with mixed groups and on
    /// object storage, which keeps copies of its own.
    pub metadata_profile: Option<Profile>,
    /// `-M`: data and metadata share block groups; so does the feature of that name.
    pub mixed: bool,
    /// `--csum`.
    pub checksum: ChecksumType,
    /// `-O` and `-R`.
    pub features: FeatureChoice,
    /// `-U`: random by default. The uuids of the chunk tree and of subvolumes follow from it.
    pub uuid: Option<Uuid>,
    /// `--device-uuid`: of the first device; those of others follow from it. Random by default.
    pub device_uuid: Option<Uuid>,
    /// `--rootdir`: the directory to copy into the file system.
    pub root_dir: Option<PathBuf>,
    /// `--subvol`: directories in `root_dir` that become subvolumes.
    pub subvolumes: Vec<SubvolumeSpec>,
    /// `--inode-flags`: how files are written, by path in the root directory.
    pub inode_flags: Vec<InodeFlagsSpec>,
    /// `--shrink`: cut the file system, and the files with it, to the size of the content.
    pub shrink: bool,
    /// `--compress`.
    pub compression: Option<Compression>,
    /// Owners in the source, and those that stand for them in the file system.
    pub owner_map: OwnerMap,
    /// `--owner`: the owner of everything, instead of the owners in the source.
    pub owner: Option<Owner>,
    /// Seconds since 1970 to use as the current time; later times of the source are set back to it.
    /// Callers pass the value of the environment variable `SOURCE_DATE_EPOCH`.
    pub source_date_epoch: Option<i64>,
    /// Threads that read, compress and checksum; by default one for each processor.
    pub threads: Option<NonZeroUsize>,
    /// Told how many bytes are written. It can stop mkfs.
    pub progress: Option<Progress>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            force: false,
            place: Place::WHOLE,
            byte_count: None,
            discard: true,
            label: String::new(),
            node_size_bytes: None,
            sector_size_bytes: 4096,
            data_profile: None,
            metadata_profile: None,
            mixed: false,
            checksum: ChecksumType::Crc32c,
            features: FeatureChoice::default(),
            uuid: None,
            device_uuid: None,
            root_dir: None,
            subvolumes: Vec::new(),
            inode_flags: Vec::new(),
            shrink: false,
            compression: None,
            owner_map: OwnerMap::default(),
            owner: None,
            source_date_epoch: None,
            threads: None,
            progress: None,
        }
    }
}

/// The profile with this name, case-insensitive.
pub fn parse_profile(name: &str) -> Result<Profile, MkfsError> {
    Profile::ALL
        .into_iter()
        .find(|profile| profile.name().eq_ignore_ascii_case(name))
        .ok_or_else(|| MkfsError::invalid(format!("unknown profile '{name}'")))
}

/// The checksum algorithm with this name, case-insensitive: `crc32c`, `xxhash`, `sha256` or
/// `blake2`.
pub fn parse_checksum(name: &str) -> Result<ChecksumType, MkfsError> {
    match name.to_ascii_lowercase().as_str() {
        "crc32c" => Ok(ChecksumType::Crc32c),
        "xxhash" | "xxhash64" => Ok(ChecksumType::Xxhash),
        "sha256" => Ok(ChecksumType::Sha256),
        "blake2" => Ok(ChecksumType::Blake2),
        _ => Err(MkfsError::invalid(format!("unknown checksum algorithm '{name}'"))),
    }
}

/// The owner of everything (`UID:GID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl FromStr for Owner {
    type Err = MkfsError;

    fn from_str(text: &str) -> Result<Self, MkfsError> {
        let parsed = text
            .split_once(':')
            .and_then(|(uid, gid)| Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()? }));
        parsed.ok_or_else(|| MkfsError::invalid(format!("'{text}' is not UID:GID in numbers")))
    }
}

/// A directory that becomes a subvolume: `DIR`, or `TYPE:DIR` with one of `rw`, `ro`, `default`
/// and `default-ro`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeSpec {
    /// Path in the root directory.
    pub path: PathBuf,
    /// Whether it cannot be changed.
    pub read_only: bool,
    /// Whether a mount without further options shows it.
    pub default: bool,
}

impl FromStr for SubvolumeSpec {
    type Err = MkfsError;

    fn from_str(text: &str) -> Result<Self, MkfsError> {
        let (kind, path) = match text.split_once(':') {
            Some((kind @ ("rw" | "ro" | "default" | "default-ro"), path)) => (kind, path),
            _ => ("rw", text),
        };
        if path.is_empty() {
            return Err(MkfsError::invalid(format!("'{text}' names no directory")));
        }
        Ok(Self {
            path: path.into(),
            read_only: matches!(kind, "ro" | "default-ro"),
            default: matches!(kind, "default" | "default-ro"),
        })
    }
}

/// How a file of the source is written, or all files below a directory that have no flags of their
/// own: `FLAGS:PATH`, with `nodatacow` or `nodatasum` or both, and a comma between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeFlagsSpec {
    /// Path in the root directory.
    pub path: PathBuf,
    /// The flags.
    pub flags: InodeFlags,
}

impl FromStr for InodeFlagsSpec {
    type Err = MkfsError;

    fn from_str(text: &str) -> Result<Self, MkfsError> {
        let Some((names, path)) = text.split_once(':').filter(|(_, path)| !path.is_empty()) else {
            return Err(MkfsError::invalid(format!("'{text}' is not FLAGS:PATH")));
        };
        let mut flags = InodeFlags::empty();
        for name in names.split(',') {
            flags |= match name {
                // What is written in place has no checksums.
                "nodatacow" => InodeFlags::NODATACOW | InodeFlags::NODATASUM,
                "nodatasum" => InodeFlags::NODATASUM,
                _ => return Err(MkfsError::invalid(format!("unknown inode flag '{name}'"))),
            };
        }
        Ok(Self { path: path.into(), flags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subvolumes_have_types_and_paths() {
        let spec = |text: &str| text.parse::<SubvolumeSpec>().unwrap();
        let of = |path: &str, read_only, default| {
            let path = path.into();
            SubvolumeSpec { path, read_only, default }
        };
        assert_eq!(spec("a/b"), of("a/b", false, false));
        assert_eq!(spec("ro:a"), of("a", true, false));
        assert_eq!(spec("default:a"), of("a", false, true));
        assert_eq!(spec("default-ro:a"), of("a", true, true));
        assert_eq!(spec("./ro:a"), of("./ro:a", false, false));
        assert_eq!(spec("odd:a"), of("odd:a", false, false));
        assert!("rw:".parse::<SubvolumeSpec>().is_err());
    }

    #[test]
    fn flags_have_names_and_paths() {
        let spec = |text: &str| text.parse::<InodeFlagsSpec>();
        let both = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        assert_eq!(
            spec("nodatacow:a/b").unwrap(),
            InodeFlagsSpec { path: "a/b".into(), flags: both }
        );
        assert_eq!(spec("nodatasum:a:b").unwrap().path, PathBuf::from("a:b"));
        assert_eq!(spec("nodatasum,nodatacow:.").unwrap().flags, both);
        for wrong in ["a", "nodatacow:", ":a", "compress:a", "nodatacow,:a"] {
            assert!(spec(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn owners_are_two_numbers() {
        assert_eq!("0:100".parse::<Owner>().unwrap(), Owner { uid: 0, gid: 100 });
        for text in ["", "0", "root:root", "0:", "-1:0"] {
            assert!(text.parse::<Owner>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_in_any_case() {
        assert_eq!(parse_profile("RAID1C3").unwrap(), Profile::Raid1c3);
        assert_eq!(parse_checksum("XXHASH").unwrap(), ChecksumType::Xxhash);
        assert!(parse_profile("raid2").is_err() && parse_checksum("md5").is_err());
    }
}
