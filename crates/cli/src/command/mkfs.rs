//! `larder mkfs`.

use std::env;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use larder::device::Place;
use larder_device::{Access, Device, FileDevice};
use larder_format::compression::Compression;
use larder_format::{ChecksumType, Profile, Uuid};
use larder_mkfs::{
    FeatureChoice, InodeFlagsSpec, MkfsError, MkfsOptions, Owner, Progress, SubvolumeSpec, mkfs,
    parse_checksum, parse_profile,
};
use rustix::process::{getegid, geteuid};

use super::device::register;
use crate::ending::wait_for_ending_servers;
use crate::global::Global;
use crate::interrupt::HalfMade;
use crate::operand::parse_uuid;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::owner::{MapOptions, parse_owner};
use crate::place::{PlaceOptions, located};
use larder_objects::parse_size;

/// Make a file system, empty or filled from a directory
///
/// Options are those of mkfs.btrfs. With --uuid, --device-uuid and SOURCE_DATE_EPOCH in the
/// environment, the same input makes the same bytes; without --rootdir also the same --owner, which
/// is otherwise the user who runs this.
///
/// Examples:
///   larder mkfs -L backup -b 8G disk.img
///   larder mkfs --rootdir rootfs --compress zstd:9 --shrink image.img
///   larder mkfs -d raid1 -m raid1 /dev/sdb /dev/sdc
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, version)]
pub struct Mkfs {
    /// Profile of data: single, dup, raid0, raid1, raid1c3, raid1c4, raid10, raid5, raid6
    #[arg(short, long, value_name = "PROFILE", value_parser = parse_profile)]
    data: Option<Profile>,
    /// Profile of metadata: dup on one device and raid1 on several unless given
    #[arg(short, long, value_name = "PROFILE", value_parser = parse_profile)]
    metadata: Option<Profile>,
    /// Keep data and metadata in the same block groups
    #[arg(short = 'M', long)]
    mixed: bool,
    /// Checksum: crc32c, xxhash, sha256 or blake2
    #[arg(long, visible_alias = "checksum", value_name = "TYPE", default_value = "crc32c",
          value_parser = parse_checksum)]
    csum: ChecksumType,
    /// Bytes of a tree block
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    nodesize: Option<u64>,
    /// Bytes of a sector
    #[arg(short, long, value_name = "SIZE", default_value = "4096", value_parser = parse_size)]
    sectorsize: u64,
    /// Features to turn on, or with ^ before them off; list-all lists them
    #[arg(short = 'O', long, value_name = "LIST")]
    features: Vec<String>,
    /// The same, for features that can also be turned on later
    #[arg(short = 'R', long, value_name = "LIST")]
    runtime_features: Vec<String>,
    /// Label
    #[arg(short = 'L', long, value_name = "LABEL", default_value = "", hide_default_value = true)]
    label: String,
    /// Uuid of the file system; random unless given
    #[arg(short = 'U', long, value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// Uuid of the first device; random unless given
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    device_uuid: Option<Uuid>,
    /// Bytes of each device; files are made this long
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = parse_size)]
    byte_count: Option<u64>,
    /// Fill the file system with what is in this directory
    #[arg(short, long, value_name = "DIR")]
    rootdir: Option<PathBuf>,
    /// Make a subvolume of this directory in the root directory; may be given several times
    #[arg(long, value_name = "[TYPE:]DIR", requires = "rootdir")]
    subvol: Vec<SubvolumeSpec>,
    /// How this file, or all below this directory, is written: nodatacow (in place, and without
    /// checksums) or nodatasum (without checksums); may be given several times
    #[arg(long, value_name = "FLAGS:PATH", requires = "rootdir")]
    inode_flags: Vec<InodeFlagsSpec>,
    /// Cut the file system to what its content takes: anything new needs it to get longer first
    #[arg(long, requires = "rootdir")]
    shrink: bool,
    /// Compress data: zlib, lzo or zstd, with a level (zstd:9)
    #[arg(long, value_name = "ALGO[:LEVEL]", requires = "rootdir")]
    compress: Option<Compression>,
    /// Owner of everything. By default the root directory of a new file system belongs to the user
    /// who runs mkfs, and files copied from a directory keep their owners
    #[arg(long, value_name = "USER:GROUP", value_parser = parse_owner)]
    owner: Option<Owner>,
    #[command(flatten)]
    map: MapOptions,
    /// Do not discard what the devices held before
    #[arg(short = 'K', long)]
    nodiscard: bool,
    /// Overwrite what the devices hold
    #[arg(short, long)]
    force: bool,
    /// Print errors only
    #[arg(short, long, overrides_with = "verbose")]
    quiet: bool,
    /// Print the summary too (default)
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    place: PlaceOptions,
    /// Image files or block devices
    #[arg(value_name = "DEVICE", required_unless_present_any = ["features", "runtime_features"])]
    devices: Vec<PathBuf>,
}

impl Mkfs {
    pub fn run(self, global: &Global) -> Outcome {
        let is_quiet = self.quiet || global.is_quiet();
        let lists = || self.features.iter().chain(&self.runtime_features);
        if lists().any(|list| list == "list-all") {
            write!(stdout(), "{}", FeatureChoice::list_all())?;
            return Ok(ExitCode::SUCCESS);
        }
        ensure!(!self.devices.is_empty(), "no device was given");
        let owner_map = self.map.map()?;
        ensure!(
            self.rootdir.is_some() || owner_map.is_empty(),
            "without --rootdir there are no owners to map; --owner says whose the root directory is"
        );
        let features = feature_choice(lists())?;
        let owner = self.owner.or_else(|| self.rootdir.is_none().then(caller));
        let place = if self.place.is_given() { self.place.place() } else { Place::WHOLE };
        let size = |bytes: u64| u32::try_from(bytes).context("a size of over 4 GiB");
        let options = MkfsOptions {
            force: self.force,
            place,
            byte_count: self.byte_count,
            discard: !self.nodiscard,
            label: self.label,
            node_size_bytes: self.nodesize.map(size).transpose()?,
            sector_size_bytes: size(self.sectorsize)?,
            data_profile: self.data,
            metadata_profile: self.metadata,
            mixed: self.mixed,
            checksum: self.csum,
            features,
            uuid: self.uuid,
            device_uuid: self.device_uuid,
            root_dir: self.rootdir,
            subvolumes: self.subvol,
            inode_flags: self.inode_flags,
            shrink: self.shrink,
            compression: self.compress,
            owner_map,
            owner,
            source_date_epoch: source_date_epoch()?,
            threads: None,
            progress: (!is_quiet).then(progress),
        };
        if let Some(uuid) = self.uuid {
            expect_new(uuid, &located(&self.devices, place))?;
        }
        wait_for_ending_servers(&located(&self.devices, place));
        let half_made = HalfMade::of(&self.devices)?;
        let made = mkfs(&self.devices, &options);
        // If it failed, it has undone its changes.
        half_made.keep();
        let summary = made.map_err(|error| match error {
            MkfsError::Occupied { ref content, .. } if content.contains("partition table") => {
                anyhow!("{error}; with -f it is overwritten, and --partition N uses one partition")
            }
            MkfsError::Occupied { .. } => anyhow!("{error}; with -f it is overwritten"),
            MkfsError::NoLength { .. } => anyhow!("{error}; -b 8G would make it that long"),
            error => error.into(),
        })?;
        register(&located(&self.devices, place));
        // The progress line goes away before the summary comes.
        drop(options);
        if !is_quiet {
            write!(stdout(), "{summary}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Fails if one of `devices` is a block device and another block device belongs to a file system
/// with this uuid: afterwards the uuid would name two. Files are made anew with the same uuid all
/// the time, and confuse nothing before they are attached.
fn expect_new(uuid: Uuid, devices: &[PathBuf]) -> anyhow::Result<()> {
    let number = |path: &PathBuf| Some(path.metadata().ok()?.rdev()).filter(|number| *number != 0);
    let targets: Vec<u64> = devices.iter().filter_map(number).collect();
    if targets.is_empty() {
        return Ok(());
    }
    let is_other = |path: &PathBuf| number(path).is_none_or(|number| !targets.contains(&number));
    let mut others = larder::block_devices().into_iter().filter(is_other);
    match others.find(|path| has_uuid(path, uuid)) {
        None => Ok(()),
        Some(other) => bail!(
            "{}: has a file system with the uuid {uuid} already; leave out --uuid, or detach it",
            other.display()
        ),
    }
}

/// Whether there is a file system with this uuid on a device, as far as it can be read.
fn has_uuid(path: &Path, uuid: Uuid) -> bool {
    let known = || {
        let device = FileDevice::open(path, Access::ReadOnly).ok()?;
        let signature = device.signature(0..device.len_bytes()).ok()??;
        signature.uuid?.parse::<Uuid>().ok()
    };
    larder::uuid_of(path) == Some(uuid) || known() == Some(uuid)
}

/// The user who runs this.
pub fn caller() -> Owner {
    Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() }
}

/// Shows how much is written.
fn progress() -> Progress {
    let bar = Mutex::new(crate::progress::Progress::of_bytes());
    Progress::new(move |written_bytes| {
        bar.lock().unwrap_or_else(PoisonError::into_inner).set(written_bytes);
        ControlFlow::Continue(())
    })
}

fn feature_choice<'a>(lists: impl Iterator<Item = &'a String>) -> Result<FeatureChoice, MkfsError> {
    let mut choice = FeatureChoice::default();
    for list in lists {
        choice.apply(list)?;
    }
    Ok(choice)
}

/// The fixed time for reproducible builds.
fn source_date_epoch() -> anyhow::Result<Option<i64>> {
    match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => Ok(Some(text.parse().context("SOURCE_DATE_EPOCH is not a number of seconds")?)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(error).context("SOURCE_DATE_EPOCH"),
    }
}
