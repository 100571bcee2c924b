//! Reading trees on mounts of larder.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use larder_filesystem::{FileType, Metadata, Timestamp, Xattr};
use larder_format::item::InodeFlags;
use larder_ioctl::channel::{
    Attributes, Channel, Kind, Record, Request, WalkRequest, Wants, frame,
};

/// What a walk reads besides names and attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub struct WalkOptions {
    /// Everything below the first directory too, not its entries only.
    pub below: bool,
    /// The targets of symbolic links.
    pub targets: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// The data of files.
    pub data: bool,
    /// The caller will read or copy files: data that the kernel has not written back yet reaches the
    /// server before the walk begins, and a file that the caller may not read is a failure. So it is
    /// with [`data`](Self::data), too.
    pub written: bool,
}

/// A walk through a tree on a mount of larder. Its server reads the tree, so that no call waits for
/// a single file. It shows the caller what the caller could read through the mount, and does it for
/// root and for the user who mounted only.
///
/// A directory comes before its entries, and all its entries before those of directories in it,
/// which follow in the order of their names. Space that dirty data will need counts as allocated.
#[derive(Debug)]
pub struct MountedWalk {
    channel: Channel,
    frame: Vec<u8>,
    /// Where the next record starts.
    at: usize,
    is_at_end: bool,
}

/// Something that the walk met.
#[derive(Clone, Debug)]
pub enum Walked {
    /// The walk enters a directory.
    Directory {
        /// Its path, which begins with the name at which the walk began.
        path: OsString,
        /// Its attributes.
        metadata: Metadata,
        /// Its extended attributes.
        xattrs: Vec<Xattr>,
    },
    /// An entry of the last directory, also if it is a directory itself.
    Entry {
        /// Its name.
        name: OsString,
        /// The attributes of its inode.
        metadata: Metadata,
        /// The target of a symbolic link.
        target: OsString,
        /// Extended attributes, but not those of a directory.
        xattrs: Vec<Xattr>,
        /// Ranges of a file that have data, in bytes. [`MountedWalk::read`] reads them.
        ranges: Vec<Range<u64>>,
    },
    /// Something could not be read, and the walk goes on.
    Failed {
        /// The path of the inode.
        path: OsString,
        /// The reason.
        reason: String,
    },
}

impl MountedWalk {
    /// Begins a walk at `name` in `directory`, or at the directory itself if there is no name.
    /// `None` if the directory does not lie on a mount of larder.
    pub fn begin(
        directory: impl AsFd,
        name: &OsStr,
        options: WalkOptions,
    ) -> io::Result<Option<Self>> {
        let Some((channel, _)) = Channel::of(directory)? else { return Ok(None) };
        let WalkOptions { below, targets, xattrs, data, written } = options;
        let wants = Wants { below, targets, xattrs, data, written };
        let request = WalkRequest { name: name.as_bytes().to_vec(), wants };
        let request = Request::Walk(request);
        let sent = frame::write(channel.socket(), request.kind(), &request.body());
        sent.map_err(frame::of_socket)?;
        Ok(Some(Self { channel, frame: Vec::new(), at: 0, is_at_end: false }))
    }

    /// The next that the walk meets; `None` at its end. Data that was not read is passed over.
    #[allow(clippy::should_implement_trait, reason = "data is read between two")]
    pub fn next(&mut self) -> io::Result<Option<Walked>> {
        loop {
            let Some(record) = self.record()? else { return Ok(None) };
            let mut walked = match record {
                Record::Directory { path, attributes } => {
                    let path = owned(path);
                    let metadata = metadata_of(&attributes)?;
                    Walked::Directory { path, metadata, xattrs: Vec::new() }
                }
                Record::Entry { name, target, attributes } => Walked::Entry {
                    name: owned(name),
                    metadata: metadata_of(&attributes)?,
                    target: owned(target),
                    xattrs: Vec::new(),
                    ranges: Vec::new(),
                },
                Record::Failed { path, reason } => {
                    let reason = String::from_utf8_lossy(reason).into_owned();
                    Walked::Failed { path: owned(path), reason }
                }
                Record::Data { .. } | Record::Ranges(_) | Record::Xattr { .. } => {
                    self.pass()?;
                    continue;
                }
            };
            self.pass()?;
            self.describe(&mut walked)?;
            return Ok(Some(walked));
        }
    }

    /// Reads what belongs to `walked`.
    fn describe(&mut self, walked: &mut Walked) -> io::Result<()> {
        let (xattrs, mut ranges) = match walked {
            Walked::Directory { xattrs, .. } => (xattrs, None),
            Walked::Entry { xattrs, ranges, .. } => (xattrs, Some(ranges)),
            Walked::Failed { .. } => return Ok(()),
        };
        loop {
            match (self.record()?, &mut ranges) {
                (Some(Record::Xattr { name, value }), _) => {
                    xattrs.push(Xattr { name: owned(name), value: value.to_vec() });
                }
                (Some(Record::Ranges(more)), Some(ranges)) => {
                    ranges.extend(more.into_iter().map(|[start, end]| start..end));
                }
                _ => return Ok(()),
            }
            self.pass()?;
        }
    }

    /// Replaces `data` by the next data of the last entry, and returns its place in the file in
    /// bytes. `None` if there is no more.
    pub fn read(&mut self, data: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let Some(Record::Data { offset, data: found }) = self.record()? else { return Ok(None) };
        data.clear();
        data.extend_from_slice(found);
        self.pass()?;
        Ok(Some(offset))
    }

    /// The next record, which stays the next one until the walk [passes](Self::pass) it. `None` at
    /// the end.
    fn record(&mut self) -> io::Result<Option<Record<'_>>> {
        while self.at == self.frame.len() && !self.is_at_end {
            self.at = 0;
            let kind = frame::read(self.channel.socket(), &mut self.frame);
            match kind.map_err(frame::of_socket)? {
                Some(Kind::Data) => {}
                Some(Kind::Done) => {
                    self.is_at_end = true;
                    self.frame.clear();
                }
                Some(Kind::Failed) => return Err(frame::failure(&mem::take(&mut self.frame))),
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => return Err(frame::gone()),
            }
        }
        if self.is_at_end {
            return Ok(None);
        }
        Record::split(&self.frame[self.at..]).map(|(record, _)| Some(record))
    }

    /// Goes past the next record.
    fn pass(&mut self) -> io::Result<()> {
        let (_, rest) = Record::split(&self.frame[self.at..])?;
        self.at = self.frame.len() - rest.len();
        Ok(())
    }
}

fn owned(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

fn metadata_of(attributes: &Attributes) -> io::Result<Metadata> {
    let file_type = FileType::from_mode(attributes.mode).ok_or(io::ErrorKind::InvalidData)?;
    let [atime, mtime, ctime, otime] = std::array::from_fn(|at| Timestamp {
        seconds: attributes.seconds[at],
        nanoseconds: attributes.nanoseconds[at],
    });
    let [major, minor] = attributes.device;
    let mut metadata = Metadata::of_type(file_type);
    metadata.subvolume = attributes.subvolume;
    metadata.inode = attributes.inode;
    metadata.mode = attributes.mode;
    metadata.nlink = attributes.nlink;
    metadata.uid = attributes.uid;
    metadata.gid = attributes.gid;
    metadata.device = (major, minor);
    metadata.size_bytes = attributes.size_bytes;
    metadata.allocated_bytes = attributes.taken_bytes;
    (metadata.atime, metadata.mtime) = (atime, mtime);
    (metadata.ctime, metadata.otime) = (ctime, otime);
    metadata.flags = InodeFlags::from_bits_retain(attributes.flags);
    metadata.generation = attributes.generation;
    metadata.change_generation = attributes.change_generation;
    metadata.sequence = attributes.sequence;
    Ok(metadata)
}
