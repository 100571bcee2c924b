//! From numbers and addresses to files.

use std::os::unix::ffi::OsStrExt;

use larder::{Extent, ExtentKind, UsedExtent};
use larder_ioctl::abi::{
    self, DataContainer, Fiemap, FiemapExtent, IGNORE_OFFSET, InoLookupArgs, InoPathArgs,
    LogicalInoArgs,
};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use zerocopy::FromZeros;

use super::call::{Ioctl, padded};
use crate::protocol::Notice;
use crate::server::call::{Outcome, failed};
use crate::server::data::may_miss_data;

/// Bytes of a value in a container.
const VALUE_BYTES: usize = size_of::<u64>();
/// Values of a reference: inode, offset, subvolume.
const REFERENCE_VALUES: usize = 3;

/// The path of an inode in a subvolume, with a slash at its end. Tree 0 is the subvolume that the
/// ioctl was called in.
pub(super) fn look_up_inode(ioctl: &mut Ioctl<'_>) -> Outcome {
    let asked: InoLookupArgs = ioctl.input()?;
    let node = ioctl.node()?;
    let subvolume = match asked.treeid {
        0 => node.inode.subvolume().clone(),
        id => ioctl.server.filesystem.subvolume_by_id(id).map_err(failed)?,
    };
    let treeid = subvolume.id();
    let root = subvolume.root().map_err(failed)?.number();
    // Every user may ask which subvolume this is.
    if asked.objectid == root {
        return ioctl.output(&InoLookupArgs { treeid, name: padded(b""), ..asked });
    }
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    let inode = subvolume.inode(asked.objectid).map_err(failed)?;
    let paths = inode.paths().map_err(failed)?;
    let path = paths.first().ok_or(Errno::NOENT)?.as_os_str().as_bytes();
    if path.len() + 1 >= asked.name.len() {
        return Err(Errno::NAMETOOLONG);
    }
    ioctl.output(&InoLookupArgs { treeid, name: padded(&[path, b"/"].concat()), ..asked })
}

/// All paths of an inode in the subvolume that the ioctl was called in.
pub(super) fn inode_paths(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::DAC_READ_SEARCH)?;
    let (asked, more) = ioctl.input_and_more::<InoPathArgs>()?;
    let node = ioctl.node()?;
    let paths =
        node.inode.subvolume().inode(asked.inum).and_then(|inode| inode.paths()).map_err(failed)?;
    // The value for a path is the offset of its text from the first value.
    let texts: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let takes = |text: &&[u8]| VALUE_BYTES + text.len() + 1;
    let room = Room::of(more.len(), asked.size, texts.iter().map(takes))?;
    let mut values = Vec::new();
    let mut names = Vec::new();
    for text in &texts[..room.fitting] {
        values.extend((room.fitting * VALUE_BYTES + names.len()).to_ne_bytes());
        names.extend_from_slice(text);
        names.push(0);
    }
    ioctl.output(&asked)?;
    ioctl.output(&room.container(1, texts.len()))?;
    ioctl.output(&*values)?;
    ioctl.output(&*names)
}

/// The file extents that refer to the data at a logical address.
pub(super) fn extent_references(ioctl: &mut Ioctl<'_>) -> Outcome {
    ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
    let (asked, more) = ioctl.input_and_more::<LogicalInoArgs>()?;
    if asked.flags & !IGNORE_OFFSET != 0 {
        return Err(Errno::INVAL);
    }
    let references =
        ioctl.server.filesystem.places_of(asked.logical, asked.flags & IGNORE_OFFSET != 0);
    let references = references.map_err(failed)?;
    let takes = |_| REFERENCE_VALUES * VALUE_BYTES;
    let room = Room::of(more.len(), asked.size, references.iter().map(takes))?;
    let values = references[..room.fitting]
        .iter()
        .flat_map(|found| [found.inode, found.offset, found.subvolume])
        .flat_map(u64::to_ne_bytes);
    ioctl.output(&asked)?;
    ioctl.output(&room.container(REFERENCE_VALUES, references.len()))?;
    ioctl.output(&*values.collect::<Vec<u8>>())
}

/// The extents of the file that the ioctl was called on, without holes, as `FS_IOC_FIEMAP` describes
/// them. A program of any user may ask if it has the file open.
pub(super) fn extents(ioctl: &mut Ioctl<'_>) -> Outcome {
    let (asked, more) = ioctl.input_and_more::<Fiemap>()?;
    let node = ioctl.node()?;
    if asked.flags & abi::FIEMAP_SYNC != 0 {
        if may_miss_data(ioctl.server, &node) {
            ioctl.call.kernel.now_or_soon(Notice::content(ioctl.call.id, 0, 0));
        }
        if node.inode.metadata().dirty_bytes > 0 {
            ioctl.server.filesystem.write_back().map_err(failed)?;
        }
    }
    let file = node.inode.clone().into_file().map_err(failed)?;
    let room = (more.len() / size_of::<FiemapExtent>()).min(asked.extent_count as usize);
    let end = asked.start.saturating_add(asked.length);
    let mut found: Vec<FiemapExtent> = Vec::new();
    let mut is_last = true;
    for extent in UsedExtent::all_from(&file, asked.start).map_err(failed)? {
        let used = extent.map_err(failed)?;
        if used.extent.offset >= end || found.len() == room {
            is_last = false;
            break;
        }
        found.push(mapped(&used));
    }
    if let Some(last) = found.last_mut().filter(|_| is_last) {
        last.flags |= abi::EXTENT_LAST;
    }
    ioctl.output(&Fiemap { mapped_extents: found.len() as u32, ..asked })?;
    found.iter().try_for_each(|extent| ioctl.output(extent))
}

fn mapped(used: &UsedExtent) -> FiemapExtent {
    let Extent { offset, len_bytes, kind, compression, logical, .. } = used.extent;
    let flags = match kind {
        ExtentKind::Delayed => abi::EXTENT_DELALLOC | abi::EXTENT_UNKNOWN,
        ExtentKind::Inline => abi::EXTENT_INLINE | abi::EXTENT_NOT_ALIGNED,
        ExtentKind::Preallocated => abi::EXTENT_UNWRITTEN,
        ExtentKind::Hole | ExtentKind::Data => 0,
    };
    let encoded = if compression.is_some() { abi::EXTENT_ENCODED } else { 0 };
    let shared = if used.is_shared { abi::EXTENT_SHARED } else { 0 };
    FiemapExtent {
        logical: offset,
        physical: logical.unwrap_or(0),
        length: len_bytes,
        flags: flags | encoded | shared,
        ..FiemapExtent::new_zeroed()
    }
}

/// The room in a container, and how much of it the results need.
struct Room {
    bytes: usize,
    needed: usize,
    /// How many results fit.
    fitting: usize,
}

impl Room {
    /// The room for results of these lengths: `size` bytes, or as many as are there.
    fn of(there: usize, size: u64, results: impl Iterator<Item = usize>) -> Result<Self, Errno> {
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(there);
        let bytes = size.checked_sub(size_of::<DataContainer>()).ok_or(Errno::INVAL)?;
        let mut room = Self { bytes, needed: 0, fitting: 0 };
        for result in results {
            room.needed += result;
            room.fitting += usize::from(room.needed <= bytes);
        }
        Ok(room)
    }

    /// The header of the values, `of_each` for each of `count` results.
    fn container(&self, of_each: usize, count: usize) -> DataContainer {
        DataContainer {
            bytes_left: self.bytes.saturating_sub(self.needed) as u32,
            bytes_missing: self.needed.saturating_sub(self.bytes) as u32,
            elem_cnt: (self.fitting * of_each) as u32,
            elem_missed: ((count - self.fitting) * of_each) as u32,
        }
    }
}
