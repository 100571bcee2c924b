//! The data of a report, as JSON has it. `docs/report.md` describes the fields.

use larder::accounting::{
    Accounting, BlockGroupUse, EncodingUse, FragmentedFile, Part, PlaceKind, PlaceUse, StoredAs,
    SubvolumeState, SubvolumeUse,
};
use larder::{DeviceErrors, DeviceInfo, Filesystem, Space, Uuid};
use serde::Serialize;

use super::names::shown;
use crate::space::{kind_name, profile_name};

/// A report.
#[derive(Serialize)]
pub struct Document {
    /// Rises when fields change their meaning.
    pub version: u32,
    pub filesystem: About,
    /// What the reader should know about the numbers.
    pub notices: Vec<String>,
    pub data: Data,
    pub space: Vec<SpaceFields>,
    pub subvolumes: Vec<Subvolume>,
    pub places: Vec<PlaceFields>,
    pub compression: Vec<Compression>,
    pub fragmentation: Fragmentation,
    pub devices: Vec<Device>,
    pub block_groups: Vec<BlockGroup>,
    /// The findings of `larder check`, if it was asked for.
    pub check: Option<larder_check::Report>,
}

impl Document {
    /// Notes that the file system went on changing while it was read.
    pub fn say_that_it_is_mounted(&mut self) {
        let generation = self.filesystem.generation;
        self.notices.push(format!(
            "The file system was mounted: this is its commit {generation}, and later changes are \
             not in here."
        ));
    }
}

#[derive(Serialize)]
pub struct About {
    pub source: String,
    pub label: String,
    pub uuid: String,
    pub generation: u64,
}

#[derive(Serialize)]
pub struct Data {
    pub extents: u64,
    pub disk_bytes: u64,
    pub uncompressed_bytes: u64,
    pub referenced_bytes: u64,
    pub tree_bytes: u64,
}

#[derive(Serialize)]
pub struct SpaceFields {
    pub kind: &'static str,
    pub profile: String,
    pub total_bytes: u64,
    pub used_bytes: u64,
    pub device_bytes: u64,
}

#[derive(Serialize)]
pub struct Subvolume {
    pub id: u64,
    pub path: Option<String>,
    pub parent_uuid: Option<String>,
    pub uuid: Option<String>,
    pub created: i64,
    pub is_read_only: bool,
    pub is_snapshot: bool,
    pub state: &'static str,
    pub file_bytes: u64,
    pub disk_bytes: u64,
    pub exclusive_bytes: u64,
    pub tree_bytes: u64,
    pub exclusive_tree_bytes: u64,
}

#[derive(Serialize)]
pub struct PlaceFields {
    pub parent: usize,
    pub kind: &'static str,
    pub name: String,
    /// From the top level; begins with a slash where the place is part of a path.
    pub path: String,
    pub subvolume: u64,
    pub inode: u64,
    pub files: u64,
    pub file_bytes: u64,
    pub unshared_file_bytes: u64,
    pub disk_bytes: u64,
    pub exclusive_bytes: u64,
    pub loose_files: PartFields,
    pub others: OtherFields,
}

#[derive(Serialize)]
pub struct PartFields {
    pub disk_bytes: u64,
    pub exclusive_bytes: u64,
}

#[derive(Serialize)]
pub struct OtherFields {
    pub count: u64,
    pub disk_bytes: u64,
    pub exclusive_bytes: u64,
}

#[derive(Serialize)]
pub struct Compression {
    pub stored_as: &'static str,
    pub is_inline: bool,
    pub extents: u64,
    pub disk_bytes: u64,
    pub uncompressed_bytes: u64,
    pub referenced_bytes: u64,
}

#[derive(Serialize)]
pub struct Fragmentation {
    pub files: u64,
    pub extents: u64,
    pub fragments: u64,
    pub histogram: Vec<Bucket>,
    pub most: Vec<Fragmented>,
}

#[derive(Serialize)]
pub struct Bucket {
    pub from_fragments: u64,
    pub files: u64,
    pub file_bytes: u64,
}

#[derive(Serialize)]
pub struct Fragmented {
    pub path: Option<String>,
    pub subvolume: u64,
    pub inode: u64,
    pub file_bytes: u64,
    pub extents: u64,
    pub fragments: u64,
}

#[derive(Serialize)]
pub struct Device {
    pub id: u64,
    pub name: Option<String>,
    pub uuid: String,
    pub total_bytes: u64,
    pub allocated_bytes: u64,
    pub is_stale: bool,
    pub is_seed: bool,
    pub errors: Option<Errors>,
}

#[derive(Serialize)]
pub struct Errors {
    pub writes: u64,
    pub reads: u64,
    pub flushes: u64,
    pub corruptions: u64,
    pub generations: u64,
}

#[derive(Serialize)]
pub struct BlockGroup {
    pub logical: u64,
    pub kind: &'static str,
    pub profile: String,
    pub total_bytes: u64,
    pub used_bytes: u64,
    pub stripe_bytes: u64,
    pub stripes: Vec<Stripe>,
}

#[derive(Serialize)]
pub struct Stripe {
    pub device: u64,
    pub offset: u64,
}

impl Document {
    pub fn new(
        source: &std::path::Path,
        filesystem: &Filesystem,
        accounting: &Accounting,
        check: Option<larder_check::Report>,
    ) -> anyhow::Result<Self> {
        let mut notices = Vec::new();
        if filesystem.needs_log_replay() {
            notices.push(
                "A crash left a log: what was synced since the last commit is not in here.".into(),
            );
        }
        if accounting.unreadable_blocks > 0 {
            let count = accounting.unreadable_blocks;
            notices.push(format!(
                "{count} tree blocks or items could not be read: what they hold is not in here."
            ));
            notices.extend(accounting.problems.iter().cloned());
        }
        let errors = match filesystem.device_errors() {
            Ok(errors) => errors,
            Err(error) => {
                notices.push(format!("The error counts of devices cannot be read: {error}."));
                Vec::new()
            }
        };
        let sum = |of: fn(&EncodingUse) -> u64| {
            let encodings = accounting.encodings.iter();
            encodings.filter(|encoding| !encoding.is_inline).map(of).fold(0, u64::saturating_add)
        };
        let fragmentation = &accounting.fragmentation;
        Ok(Self {
            version: 1,
            filesystem: About {
                source: shown(source.as_os_str().as_encoded_bytes()),
                label: shown(filesystem.label().as_encoded_bytes()),
                uuid: filesystem.uuid().to_string(),
                generation: accounting.generation,
            },
            notices,
            data: Data {
                extents: accounting.data_extents,
                disk_bytes: accounting.data_bytes,
                uncompressed_bytes: sum(|encoding| encoding.uncompressed_bytes),
                referenced_bytes: sum(|encoding| encoding.referenced_bytes),
                tree_bytes: accounting.tree_bytes,
            },
            space: filesystem.space()?.iter().map(SpaceFields::of).collect(),
            subvolumes: accounting.subvolumes.iter().map(Subvolume::of).collect(),
            places: places(&accounting.places),
            compression: accounting.encodings.iter().map(Compression::of).collect(),
            fragmentation: Fragmentation {
                files: fragmentation.files,
                extents: fragmentation.extents,
                fragments: fragmentation.fragments,
                histogram: fragmentation
                    .histogram
                    .iter()
                    .map(|bucket| Bucket {
                        from_fragments: bucket.from_fragments,
                        files: bucket.files,
                        file_bytes: bucket.file_bytes,
                    })
                    .collect(),
                most: fragmentation.most.iter().map(Fragmented::of).collect(),
            },
            devices: filesystem
                .devices()
                .iter()
                .map(|device| Device::of(device, &errors))
                .collect(),
            block_groups: accounting.block_groups.iter().map(BlockGroup::of).collect(),
            check,
        })
    }
}

impl SpaceFields {
    fn of(space: &Space) -> Self {
        Self {
            kind: kind_name(space.kind),
            profile: profile_name(space.profile),
            total_bytes: space.total_bytes,
            used_bytes: space.used_bytes,
            device_bytes: space.raw_bytes,
        }
    }
}

impl Subvolume {
    fn of(subvolume: &SubvolumeUse) -> Self {
        let info = &subvolume.info;
        let uuid = |uuid: Uuid| (!uuid.is_nil()).then(|| uuid.to_string());
        Self {
            id: info.id,
            path: subvolume.path.as_ref().map(|path| format!("/{}", shown(path))),
            parent_uuid: uuid(info.parent_uuid),
            uuid: uuid(info.uuid),
            created: info.creation_time.seconds,
            is_read_only: info.is_read_only,
            is_snapshot: info.is_snapshot,
            state: match subvolume.state {
                SubvolumeState::Opened => "opened",
                SubvolumeState::Closed => "closed",
                SubvolumeState::Deleted => "deleted",
            },
            file_bytes: subvolume.file_bytes,
            disk_bytes: subvolume.disk_bytes,
            exclusive_bytes: subvolume.exclusive_bytes,
            tree_bytes: subvolume.tree_bytes,
            exclusive_tree_bytes: subvolume.exclusive_tree_bytes,
        }
    }
}

/// Places with their paths. Those above come before those below.
fn places(places: &[PlaceUse]) -> Vec<PlaceFields> {
    let mut shown: Vec<PlaceFields> = Vec::with_capacity(places.len());
    for place in places {
        let above = shown.get(place.parent).map(|place| place.path.as_str());
        shown.push(PlaceFields::of(place, above));
    }
    shown
}

impl PlaceFields {
    fn of(place: &PlaceUse, above: Option<&str>) -> Self {
        let kind = match place.kind {
            PlaceKind::Everything => "everything",
            PlaceKind::Deleted => "deleted",
            PlaceKind::Internal => "internal",
            PlaceKind::Unnamed => "unnamed",
            PlaceKind::Subvolume => "subvolume",
            PlaceKind::ClosedSubvolume => "closed-subvolume",
            PlaceKind::Directory => "directory",
            PlaceKind::File => "file",
        };
        let name = match place.kind {
            PlaceKind::Everything => "everything".into(),
            PlaceKind::Deleted => "subvolumes being deleted".into(),
            PlaceKind::Internal => "the file system's own data".into(),
            PlaceKind::Unnamed => "without a name".into(),
            PlaceKind::Subvolume if place.parent == 0 && place.name.is_empty() => "/".into(),
            _ if place.name.is_empty() => {
                format!("(inode {} of subvolume {})", place.inode, place.subvolume)
            }
            _ => shown(&place.name),
        };
        let path = match above {
            _ if name == "/" => name.clone(),
            Some(above) if above.starts_with('/') => {
                format!("{}/{name}", above.trim_end_matches('/'))
            }
            _ => name.clone(),
        };
        Self {
            parent: place.parent,
            kind,
            name,
            path,
            subvolume: place.subvolume,
            inode: place.inode,
            files: place.files,
            file_bytes: place.file_bytes,
            unshared_file_bytes: place.unshared_file_bytes,
            disk_bytes: place.part.disk_bytes,
            exclusive_bytes: place.part.exclusive_bytes,
            loose_files: PartFields::of(place.loose_files),
            others: OtherFields {
                count: place.others.count,
                disk_bytes: place.others.part.disk_bytes,
                exclusive_bytes: place.others.part.exclusive_bytes,
            },
        }
    }
}

impl PartFields {
    fn of(part: Part) -> Self {
        Self { disk_bytes: part.disk_bytes, exclusive_bytes: part.exclusive_bytes }
    }
}

impl Compression {
    fn of(encoding: &EncodingUse) -> Self {
        Self {
            stored_as: match encoding.stored_as {
                StoredAs::Plain => "none",
                StoredAs::Compressed(algorithm) => algorithm.name(),
                StoredAs::Preallocated => "prealloc",
            },
            is_inline: encoding.is_inline,
            extents: encoding.extents,
            disk_bytes: encoding.disk_bytes,
            uncompressed_bytes: encoding.uncompressed_bytes,
            referenced_bytes: encoding.referenced_bytes,
        }
    }
}

impl Fragmented {
    fn of(file: &FragmentedFile) -> Self {
        Self {
            path: file.path.as_ref().map(|path| format!("/{}", shown(path))),
            subvolume: file.subvolume,
            inode: file.inode,
            file_bytes: file.file_bytes,
            extents: file.extents,
            fragments: file.fragments,
        }
    }
}

impl Device {
    fn of(device: &DeviceInfo, errors: &[DeviceErrors]) -> Self {
        let errors = errors.iter().find(|errors| errors.id == device.id);
        Self {
            id: device.id,
            name: device.name.as_ref().map(|name| shown(name.as_bytes())),
            uuid: device.uuid.to_string(),
            total_bytes: device.total_bytes,
            allocated_bytes: device.allocated_bytes,
            is_stale: device.is_stale,
            is_seed: device.is_seed,
            errors: errors.map(|errors| Errors {
                writes: errors.writes,
                reads: errors.reads,
                flushes: errors.flushes,
                corruptions: errors.corruptions,
                generations: errors.generations,
            }),
        }
    }
}

impl Errors {
    pub fn sum(&self) -> u64 {
        let counts = [self.writes, self.reads, self.flushes, self.corruptions, self.generations];
        counts.into_iter().fold(0, u64::saturating_add)
    }
}

impl BlockGroup {
    fn of(group: &BlockGroupUse) -> Self {
        let stripe = |(device, offset): &(u64, u64)| Stripe { device: *device, offset: *offset };
        Self {
            logical: group.logical,
            kind: kind_name(group.kind),
            profile: profile_name(group.profile),
            total_bytes: group.total_bytes,
            used_bytes: group.used_bytes,
            stripe_bytes: group.stripe_bytes,
            stripes: group.stripes.iter().map(stripe).collect(),
        }
    }
}
