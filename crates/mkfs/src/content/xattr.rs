//! Extended attributes, including POSIX ACLs and capabilities.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use larder_format::item::{DirEntry, DirItemHeader, FileType, XATTR_NAME_MAX};
use larder_format::{DiskKey, ItemType, Key, name_hash};
use rustix::buffer::spare_capacity;
use rustix::fs::{fgetxattr, flistxattr, getxattr, listxattr};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::Output;
use crate::MkfsError;
use crate::settings::{GENERATION, Settings};

/// The most that Linux returns for a list of names or for a value (`XATTR_SIZE_MAX`).
const MAX_BYTES: usize = 64 * 1024;

/// The source of attributes: an open file, or the path of one that should not be opened, through
/// `/proc`.
pub(super) enum XattrSource<'a> {
    Open(&'a OwnedFd),
    Path(&'a Path),
}

impl XattrSource<'_> {
    fn list(&self, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
        buffer.clear();
        match self {
            Self::Open(file) => flistxattr(file, spare_capacity(buffer)),
            Self::Path(path) => listxattr(*path, spare_capacity(buffer)),
        }
    }

    fn get(&self, name: &[u8], buffer: &mut Vec<u8>) -> Result<usize, Errno> {
        buffer.clear();
        match self {
            Self::Open(file) => fgetxattr(file, name, spare_capacity(buffer)),
            Self::Path(path) => getxattr(*path, name, spare_capacity(buffer)),
        }
    }
}

/// Buffers that are reused from inode to inode.
#[derive(Debug)]
pub(super) struct XattrReader {
    names: Vec<u8>,
    value: Vec<u8>,
}

impl XattrReader {
    pub(super) fn new() -> Self {
        Self { names: Vec::with_capacity(MAX_BYTES), value: Vec::with_capacity(MAX_BYTES) }
    }

    /// Adds the attributes of an inode. Skips one that vanishes meanwhile.
    pub(super) fn add_xattrs(
        &mut self,
        source: &XattrSource<'_>,
        path: impl Fn() -> PathBuf,
        inode: u64,
        settings: &Settings,
        output: &mut Output,
    ) -> Result<(), MkfsError> {
        match source.list(&mut self.names) {
            Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(MkfsError::source(path)(errno)),
        }
        let names = self.names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        let mut names: Vec<(u64, &[u8])> =
            names.map(|name| (name_hash::dir_name(name), name)).collect();
        names.sort_unstable();
        let mut data = Vec::new();
        for same_hash in names.chunk_by(|one, other| one.0 == other.0) {
            data.clear();
            for (_, name) in same_hash {
                match source.get(name, &mut self.value) {
                    Ok(_) => {
                        settings.owner_map.map_xattr(name, &mut self.value);
                        write_xattr(name, &self.value, &mut data);
                    }
                    Err(Errno::NODATA) => continue,
                    Err(errno) => return Err(MkfsError::source(&path)(errno)),
                }
                if name.len() > XATTR_NAME_MAX || data.len() > settings.max_item_size() {
                    let name = name.escape_ascii();
                    let problem = format!("the extended attribute '{name}' does not fit a leaf");
                    return Err(MkfsError::Unsupported { path: path(), problem });
                }
            }
            if !data.is_empty() {
                output.item(Key::new(inode, ItemType::XATTR_ITEM, same_hash[0].0), &[&data]);
            }
        }
        Ok(())
    }
}

fn write_xattr(name: &[u8], value: &[u8], data: &mut Vec<u8>) {
    let header = DirItemHeader {
        location: DiskKey::from(Key::MIN),
        transid: GENERATION.into(),
        data_len: (value.len() as u16).into(),
        name_len: (name.len() as u16).into(),
        file_type: FileType::Xattr as u8,
    };
    data.reserve(DirEntry::len_bytes(name.len(), value.len()));
    data.extend_from_slice(header.as_bytes());
    data.extend_from_slice(name);
    data.extend_from_slice(value);
}
