//! What this library shows in an image, in the form in which the kernel is asked.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use larder::{
    Directory, File, FileType, Filesystem, Inode, ListedEntry, ListedInode, Metadata, Timestamp,
};
use larder_testkit::manifest::{Body, ContentHash, Entry, Manifest};

/// Longer holes are trusted to read as zeros, as on the kernel's side.
const LARGEST_HOLE_READ_BYTES: u64 = 64 << 20;

/// Describes everything below the top level.
#[track_caller]
pub(crate) fn manifest(fs: &Filesystem) -> Manifest {
    let root = fs.subvolume("/").and_then(|top| top.root()).expect("the top level has a root");
    let mut manifest = Manifest::new();
    let mut pending = vec![(PathBuf::new(), root.into_inode())];
    while let Some((path, inode)) = pending.pop() {
        let entry = describe(&inode)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        if inode.file_type() == FileType::Directory {
            let directory = inode.into_directory().expect("it is one");
            pending.extend(children(&directory, &path));
        }
        manifest.insert(path.into_os_string().into_vec(), entry);
    }
    manifest
}

#[track_caller]
fn children(directory: &Directory, path: &Path) -> Vec<(PathBuf, Inode)> {
    let mut listed = listed(directory).into_iter();
    let entries = directory.entries().expect("a directory has entries");
    let children = entries
        .map(|entry| {
            let entry = entry.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let path = path.join(entry.name());
            let inode = directory
                .lookup(entry.name())
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(inode.file_type(), entry.file_type(), "{}", path.display());
            assert_eq!(inode, entry.open().expect("it was found"), "{}", path.display());
            let (name, metadata) = listed.next().expect("it is listed in both ways");
            assert_eq!(name, entry.name());
            assert_eq!(metadata, inode.metadata(), "{}", path.display());
            (path, inode)
        })
        .collect();
    assert_eq!(listed.next(), None);
    children
}

/// The content of a directory with the attributes, listed piece by piece.
fn listed(directory: &Directory) -> Vec<(OsString, Metadata)> {
    let (mut listed, mut next) = (Vec::new(), Some(0));
    while let Some(index) = next {
        let piece = directory.list_with_inodes(index, 7).expect("a directory is listed");
        assert!(piece.entries.len() <= 7);
        for entry in piece.entries {
            let ListedEntry { entry, found } = entry.expect("it can be read");
            let metadata = match found.expect("it can be read") {
                ListedInode::Open(inode) => inode.metadata(),
                ListedInode::Attributes(metadata) => metadata,
            };
            listed.push((entry.name().to_owned(), metadata));
        }
        next = piece.next;
    }
    listed
}

fn describe(inode: &Inode) -> larder::Result<Entry> {
    let metadata = inode.metadata();
    // For a directory that stands for a subvolume, the kernel knows neither a subvolume nor flags.
    let is_on_disk = !inode.is_empty_subvolume();
    let has_flags = matches!(metadata.file_type, FileType::Regular | FileType::Directory);
    let mut xattrs = BTreeMap::new();
    for xattr in inode.xattrs() {
        let xattr = xattr?;
        assert_eq!(inode.xattr(&xattr.name)?, xattr.value);
        xattrs.insert(xattr.name.into_vec(), xattr.value);
    }
    Ok(Entry {
        permissions: metadata.mode as u16 & 0o7777,
        uid: metadata.uid,
        gid: metadata.gid,
        nlink: metadata.nlink,
        size_bytes: metadata.size_bytes,
        allocated_bytes: metadata.allocated_bytes,
        atime: time(metadata.atime),
        mtime: time(metadata.mtime),
        ctime: time(metadata.ctime),
        otime: time(metadata.otime),
        inode: metadata.inode,
        subvolume: if is_on_disk { metadata.subvolume } else { 0 },
        flags: (has_flags && is_on_disk).then(|| metadata.ioctl_flags()),
        xattrs,
        body: body(inode, metadata.device)?,
    })
}

fn time(time: Timestamp) -> larder_testkit::manifest::Timestamp {
    larder_testkit::manifest::Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn body(inode: &Inode, number: (u32, u32)) -> larder::Result<Body> {
    Ok(match inode.file_type() {
        FileType::Regular => {
            let file = inode.clone().into_file()?;
            let data = file.data_ranges()?;
            Body::File { hash: content_hash(&file)?, data }
        }
        FileType::Directory => {
            let directory = inode.clone().into_directory()?;
            let name = |entry: larder::Entry| entry.name().as_bytes().to_vec();
            let names = directory.entries()?.map(|entry| entry.map(name));
            Body::Folder { names: names.collect::<Result<_, _>>()? }
        }
        FileType::Symlink => {
            Body::Symlink { target: inode.link_target()?.into_os_string().into_vec() }
        }
        FileType::CharDevice => Body::CharacterDevice { number },
        FileType::BlockDevice => Body::BlockDevice { number },
        FileType::Fifo => Body::Fifo,
        FileType::Socket => Body::Socket,
    })
}

/// Reads holes like data, unless they are very long.
fn content_hash(file: &File) -> larder::Result<u64> {
    let mut hash = ContentHash::new();
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < file.len_bytes() {
        let data = next_data(file, offset)?;
        if data - offset > LARGEST_HOLE_READ_BYTES {
            hash.skip_hole(data - offset);
            offset = data;
            continue;
        }
        let len = file.read_at(&mut buffer, offset)?;
        assert!(len > 0, "nothing at {offset} of {}", file.len_bytes());
        hash.update(&buffer[..len]);
        offset += len as u64;
    }
    Ok(hash.finish())
}

fn next_data(file: &File, offset: u64) -> larder::Result<u64> {
    match file.seek_data(offset) {
        Err(error) if error.kind() == larder::ErrorKind::NoSuchPosition => Ok(file.len_bytes()),
        found => found,
    }
}
