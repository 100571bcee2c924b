//! Opening.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_device::{Access, Device, DeviceError, FileDevice, Signature, Window};
use larder_platform::FileTypeExt;

use crate::Place;
use crate::find::{Part, find, holds_btrfs};
use crate::objects;
use crate::qcow2;

/// The memory that a disk on object storage takes unless somebody says otherwise, in bytes.
pub const OBJECTS_BYTES: u64 = 384 << 20;

/// The first bytes of a qcow2 image.
const QCOW2_MAGIC: [u8; 4] = *b"QFI\xfb";

/// The device that a file system is on.
#[derive(Debug)]
pub struct Opened {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The same, if it is all of a regular file, whose length can change.
    pub file: Option<Arc<FileDevice>>,
    /// The file or block device that has the bytes of the device, if they lie in one stretch.
    host: Option<Stretch>,
}

/// A stretch of a file or block device.
#[derive(Debug)]
struct Stretch {
    file: Arc<FileDevice>,
    offset: u64,
}

impl Opened {
    /// Opens what is at `place` of the image file or block device at `path`, or of the objects that
    /// a URL leads to.
    ///
    /// # Errors
    /// Those of [`FileDevice::open`]; and [`DeviceError::Open`] if the place is not there, or must
    /// be chosen.
    pub fn open(path: &Path, access: Access, place: Place) -> Result<Self, DeviceError> {
        Self::open_within(path, access, place, OBJECTS_BYTES)
    }

    /// Creates an empty file, for this user only.
    ///
    /// # Errors
    /// Those of [`FileDevice::create_new`].
    pub fn create(path: &Path) -> Result<Self, DeviceError> {
        let file = Arc::new(FileDevice::create_new(path)?);
        let host = Some(Stretch { file: Arc::clone(&file), offset: 0 });
        Ok(Self { device: Arc::clone(&file) as Arc<dyn Device>, file: Some(file), host })
    }

    /// The same as [`open`](Self::open). If a URL leads to the disk, its cache and what is on its way
    /// to and from the store take up to `objects_bytes` of memory, and not [`OBJECTS_BYTES`].
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_within(
        path: &Path,
        access: Access,
        place: Place,
        objects_bytes: u64,
    ) -> Result<Self, DeviceError> {
        let (path, place) = locate(path, place);
        let Content { device, file, host, sector_bytes } =
            Content::open(&path, access, objects_bytes)?;
        let host = |offset| host.map(|file| Stretch { file, offset });
        let failed = |source| DeviceError::Open { device: device.name().to_owned(), source };
        let (offset, end) = match find(device.as_ref(), sector_bytes, place).map_err(failed)? {
            Part::Whole => return Ok(Self { device, file, host: host(0) }),
            Part::Partition(partition) => {
                (partition.offset, partition.offset + partition.len_bytes)
            }
            Part::Range { offset, end } => (offset, end),
        };
        // Its name stays a path, by which a mounted file system and its devices are found.
        let name = device.name().to_owned();
        let device = Arc::new(Window::new(device, name, offset, end - offset)?);
        Ok(Self { device, file: None, host: host(offset) })
    }

    /// What the system's libblkid knows about the content of the device. `None` if it knows nothing,
    /// if the system does not have that library, or if it cannot read images of this kind.
    pub fn signature(&self) -> io::Result<Option<Signature>> {
        let Some(Stretch { file, offset }) = &self.host else { return Ok(None) };
        file.signature(*offset..*offset + self.device.len_bytes())
    }
}

/// A disk: the file or block device itself, or the disk in it.
struct Content {
    device: Arc<dyn Device>,
    /// The same, if it is a regular file.
    file: Option<Arc<FileDevice>>,
    /// The same, if it is a regular file or a block device.
    host: Option<Arc<FileDevice>>,
    sector_bytes: u32,
}

impl Content {
    fn open(path: &Path, access: Access, objects_bytes: u64) -> Result<Self, DeviceError> {
        if larder_objects::is_url(path.as_os_str()) {
            let device = objects::open(path, access, objects_bytes)?;
            let sector_bytes = objects::SECTOR_BYTES;
            return Ok(Self { device, file: None, host: None, sector_bytes });
        }
        let file = Arc::new(FileDevice::open(path, access)?);
        let sector_bytes = file.sector_bytes();
        if file.is_block_device() {
            let host = Some(Arc::clone(&file));
            return Ok(Self { device: file, file: None, host, sector_bytes });
        }
        if is_qcow2(&file) {
            let device = qcow2::open(file, path)?;
            return Ok(Self { device, file: None, host: None, sector_bytes });
        }
        let device = Arc::clone(&file) as Arc<dyn Device>;
        Ok(Self { device, host: Some(Arc::clone(&file)), file: Some(file), sector_bytes })
    }
}

fn is_qcow2(file: &FileDevice) -> bool {
    let mut magic = [0; QCOW2_MAGIC.len()];
    file.read_at(&mut magic, 0).is_ok() && magic == QCOW2_MAGIC
}

/// Opens what is at `place` of the image file or block device at `path`, with the errors of
/// [`Opened::open`].
pub fn open(path: &Path, access: Access, place: Place) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(Opened::open(path, access, place)?.device)
}

/// Whether the file or block device at `path` holds btrfs, as a whole or in a partition.
pub fn is_image(path: &Path) -> bool {
    let content = Content::open(path, Access::ReadOnly, OBJECTS_BYTES);
    content.is_ok_and(|content| holds_btrfs(content.device.as_ref(), content.sector_bytes))
}

/// Whether two places of the image file or block device at `path` are the same.
///
/// # Errors
/// As for [`Opened::open`].
pub fn is_same(path: &Path, one: Place, other: Place) -> Result<bool, DeviceError> {
    if one == other {
        return Ok(true);
    }
    let Content { device, sector_bytes, .. } =
        Content::open(path, Access::ReadOnly, OBJECTS_BYTES)?;
    let start = |place| {
        let found = find(device.as_ref(), sector_bytes, place);
        let found = found
            .map_err(|source| DeviceError::Open { device: device.name().to_owned(), source })?;
        Ok(match found {
            Part::Whole => 0,
            Part::Partition(partition) => partition.offset,
            Part::Range { offset, .. } => offset,
        })
    };
    Ok(start(one)? == start(other)?)
}

/// The path and place that lead to the same file system, by the node of its partition if `path` is
/// a disk whose partitions the kernel knows.
pub fn locate(path: &Path, place: Place) -> (PathBuf, Place) {
    let node = partition_node(path, place).ok().flatten();
    node.map_or_else(|| (path.to_owned(), place), |node| (node, Place::WHOLE))
}

/// Errors come again when `path` is opened.
fn partition_node(path: &Path, place: Place) -> Result<Option<PathBuf>, io::Error> {
    if place == Place::WHOLE || !path.metadata()?.file_type().is_block_device() {
        return Ok(None);
    }
    let disk = FileDevice::open(path, Access::ReadOnly).map_err(io::Error::other)?;
    Ok(match find(&disk, disk.sector_bytes(), place)? {
        Part::Partition(partition) => {
            larder_device::partition_node(path, partition.offset, partition.len_bytes)
        }
        Part::Whole | Part::Range { .. } => None,
    })
}
