//! From numbers and addresses to files.

use std::os::unix::ffi::OsStrExt;

use larder_ioctl::abi::{DataContainer, IGNORE_OFFSET, InoLookupArgs, InoPathArgs, LogicalInoArgs};
use rustix::io::Errno;

use super::{Ioctl, Outcome, Server, failed, padded};
use crate::server::Call;

/// Bytes of a value in a container.
const VALUE_BYTES: usize = size_of::<u64>();
/// Values that say where data is seen: inode, offset, subvolume.
const PLACE_VALUES: usize = 3;

impl Server {
    /// The path of an inode in a subvolume, with a slash at its end; of tree 0 that of the inode that the
    /// ioctl was called of.
    pub(super) fn look_up_inode(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        let asked: InoLookupArgs = io.input()?;
        let own = self.node(call)?.inode.subvolume();
        let subvolume = match asked.treeid {
            0 => own,
            id => self.filesystem.subvolume_by_id(id).map_err(failed)?,
        };
        let treeid = subvolume.id();
        let root = subvolume.root().map_err(failed)?.number();
        // Anybody may ask which subvolume this is.
        if asked.objectid == root {
            return io.output(&InoLookupArgs { treeid, name: padded(b""), ..asked });
        }
        self.check_privileged(call)?;
        let inode = subvolume.inode(asked.objectid).map_err(failed)?;
        let paths = inode.paths().map_err(failed)?;
        let path = paths.first().ok_or(Errno::NOENT)?.as_os_str().as_bytes();
        if path.len() + 1 >= asked.name.len() {
            return Err(Errno::NAMETOOLONG);
        }
        io.output(&InoLookupArgs { treeid, name: padded(&[path, b"/"].concat()), ..asked })
    }

    /// All paths of an inode in the subvolume that the ioctl was called in.
    pub(super) fn inode_paths(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        self.check_privileged(call)?;
        let (asked, more) = io.input_and_more::<InoPathArgs>()?;
        let subvolume = self.node(call)?.inode.subvolume();
        let paths = subvolume.inode(asked.inum).and_then(|inode| inode.paths()).map_err(failed)?;
        // Each is a value, which says where from the first value on its text is.
        let texts: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
        let takes = |text: &&[u8]| VALUE_BYTES + text.len() + 1;
        let room = Room::of(more.len(), asked.size, texts.iter().map(takes))?;
        let mut values = Vec::new();
        let mut behind = Vec::new();
        for text in &texts[..room.fitting] {
            values.extend((room.fitting * VALUE_BYTES + behind.len()).to_ne_bytes());
            behind.extend_from_slice(text);
            behind.push(0);
        }
        io.output(&asked)?;
        io.output(&room.container(1, texts.len()))?;
        io.output(&*values)?;
        io.output(&*behind)
    }

    /// Where in files the data at a logical address is seen.
    pub(super) fn places_of_address(&self, call: &Call<'_>, io: &mut Ioctl<'_>) -> Outcome {
        self.check_privileged(call)?;
        let (asked, more) = io.input_and_more::<LogicalInoArgs>()?;
        if asked.flags & !IGNORE_OFFSET != 0 {
            return Err(Errno::INVAL);
        }
        let places = self.filesystem.places_of(asked.logical, asked.flags & IGNORE_OFFSET != 0);
        let places = places.map_err(failed)?;
        let takes = |_| PLACE_VALUES * VALUE_BYTES;
        let room = Room::of(more.len(), asked.size, places.iter().map(takes))?;
        let values = places[..room.fitting]
            .iter()
            .flat_map(|place| [place.inode, place.offset, place.subvolume])
            .flat_map(u64::to_ne_bytes);
        io.output(&asked)?;
        io.output(&room.container(PLACE_VALUES, places.len()))?;
        io.output(&*values.collect::<Vec<u8>>())
    }
}

/// The room in a container and what of it is needed.
struct Room {
    bytes: usize,
    needed: usize,
    /// How many results fit.
    fitting: usize,
}

impl Room {
    /// The room that the caller says it has, if it has it, for results that take so many bytes each.
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

    /// What stands before the values, `of_each` for each of `count` results.
    fn container(&self, of_each: usize, count: usize) -> DataContainer {
        DataContainer {
            bytes_left: self.bytes.saturating_sub(self.needed) as u32,
            bytes_missing: self.needed.saturating_sub(self.bytes) as u32,
            elem_cnt: (self.fitting * of_each) as u32,
            elem_missed: ((count - self.fitting) * of_each) as u32,
        }
    }
}
