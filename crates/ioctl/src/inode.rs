//! From numbers and addresses to files.

use std::io;
use std::os::fd::AsFd;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::{
    DataContainer, INO_PATHS, InoPathArgs, LOGICAL_INO, LOGICAL_INO_V2, LogicalInoArgs,
};
use crate::call;
use crate::invalid::invalid;

/// Bytes of a container, unless something limits it: as many as the kernel allows.
const MOST_CONTAINER_BYTES: usize = 64 << 10;

/// A place in a file that refers to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePlace {
    /// The subvolume.
    pub subvolume: u64,
    /// The inode in it.
    pub inode: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// All paths of an inode, from the root of the subvolume that `inside` lies in.
pub fn inode_paths(inside: impl AsFd, inode: u64) -> io::Result<Vec<Vec<u8>>> {
    let size = container_bytes::<InoPathArgs>(&inside)?;
    let args = InoPathArgs { inum: inode, size: size as u64, ..InoPathArgs::new_zeroed() };
    let mut bytes = [args.as_bytes(), &vec![0; size]].concat();
    let lead = |args: &mut InoPathArgs, address| args.fspath = address;
    call::with_more(inside, INO_PATHS, &mut bytes, |args: &InoPathArgs| args.size, Some(lead))?;
    let (values, behind) = values_of(&bytes[size_of::<InoPathArgs>()..])?;
    let path = |at: &u64| {
        let text = usize::try_from(*at).ok().and_then(|at| behind.get(at..));
        let text = text.ok_or(invalid("a path that begins elsewhere"))?;
        Ok(text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
    };
    values.iter().map(path).collect()
}

/// The places in files that refer to the data at the logical address `logical`; with
/// `of_whole_extent`, to any data of its extent.
pub fn places_of(
    inside: impl AsFd,
    logical: u64,
    of_whole_extent: bool,
) -> io::Result<Vec<FilePlace>> {
    let size = container_bytes::<LogicalInoArgs>(&inside)?;
    let mut args = LogicalInoArgs { logical, size: size as u64, ..LogicalInoArgs::new_zeroed() };
    let request = if of_whole_extent { LOGICAL_INO_V2 } else { LOGICAL_INO };
    args.flags = of_whole_extent.into();
    let mut bytes = [args.as_bytes(), &vec![0; size]].concat();
    let lead = |args: &mut LogicalInoArgs, address| args.inodes = address;
    call::with_more(inside, request, &mut bytes, |args: &LogicalInoArgs| args.size, Some(lead))?;
    let (values, _) = values_of(&bytes[size_of::<LogicalInoArgs>()..])?;
    let place =
        |three: &[u64]| FilePlace { subvolume: three[2], inode: three[0], offset: three[1] };
    Ok(values.chunks_exact(3).map(place).collect())
}

fn container_bytes<T>(inside: impl AsFd) -> io::Result<usize> {
    Ok((call::most_bytes(inside)? - size_of::<T>()).min(MOST_CONTAINER_BYTES))
}

/// The values in a container, and the bytes after its header.
fn values_of(bytes: &[u8]) -> io::Result<(Vec<u64>, &[u8])> {
    let short = || invalid("an answer that is too short");
    let (container, behind) = DataContainer::read_from_prefix(bytes).map_err(|_| short())?;
    if container.elem_missed != 0 {
        return Err(invalid("there is more than an answer has room for"));
    }
    let len = container.elem_cnt as usize * size_of::<u64>();
    let values = behind.get(..len).ok_or_else(short)?.chunks_exact(size_of::<u64>());
    Ok((values.map(|value| u64::read_from_bytes(value).unwrap_or_default()).collect(), behind))
}
