//! `larder tar`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::vec;

use clap::Args;
use larder::{File, FileType, Inode, Timestamp};
use tar::{Builder, EntryType, Header};

use super::{Outcome, exit_code};
use crate::output::stdout;
use crate::progress::Progress;
use crate::source::{PathSource, warn_of_bad_copies};
use crate::tree::{Node, Visitor, walk};

/// Write a tree of a file system that is not mounted to standard output as a tar archive
///
/// Extended attributes, ACLs, hard links, sparse files and times to the nanosecond are kept, in the
/// form that GNU tar reads with --xattrs --xattrs-include='*'.
///
/// Example: larder tar disk.img:/home | zstd > home.tar.zst
#[derive(Debug, Args)]
pub struct Tar {
    #[command(flatten)]
    source: PathSource,
    /// What to write; without a path, the root
    #[arg(value_name = "IMAGE:/PATH")]
    path: OsString,
}

impl Tar {
    pub fn run(self) -> Outcome {
        let inode = self.source.find(&self.path, false)?;
        let out = io::BufWriter::with_capacity(1 << 20, stdout());
        let mut archive = Archive {
            builder: Builder::new(out),
            progress: Progress::of_bytes(),
            written_bytes: 0,
        };
        let failures = walk(&inode, &mut archive)?;
        warn_of_bad_copies(inode.subvolume().filesystem());
        archive.builder.into_inner()?.flush()?;
        Ok(exit_code(failures))
    }
}

/// Bytes of a tar block; headers and data are padded to it.
const BLOCK_BYTES: usize = 512;

/// Writes the inodes of a walk.
struct Archive<W: Write> {
    builder: Builder<W>,
    progress: Progress,
    written_bytes: u64,
}

/// Attributes that do not fit into the header, as PAX records.
#[derive(Default)]
struct Pax(Vec<(String, Vec<u8>)>);

impl Pax {
    fn add(&mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) {
        self.0.push((key.into(), value.into()));
    }

    fn time(&mut self, key: &str, time: Timestamp) {
        // A decimal number: before 1970 the fraction counts the other way.
        let nanoseconds = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        let sign = if nanoseconds < 0 { "-" } else { "" };
        let (whole, rest) = (
            nanoseconds.unsigned_abs() / 1_000_000_000,
            nanoseconds.unsigned_abs() % 1_000_000_000,
        );
        self.add(key, format!("{sign}{whole}.{rest:09}"));
    }
}

impl<W: Write> Archive<W> {
    /// A header with the attributes of `inode`, and records for those that do not fit.
    fn describe(path: &Path, inode: &Inode, kind: EntryType) -> anyhow::Result<(Header, Pax)> {
        let metadata = inode.metadata();
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(metadata.mode & 0o7777);
        header.set_uid(metadata.uid.into());
        header.set_gid(metadata.gid.into());
        header.set_mtime(u64::try_from(metadata.mtime.seconds).unwrap_or(0));
        header.set_size(0);
        let mut pax = Pax::default();
        for (key, id) in [("uid", metadata.uid), ("gid", metadata.gid)] {
            // The header's field has seven octal digits.
            if id >= 1 << 21 {
                pax.add(key, id.to_string());
            }
        }
        pax.time("mtime", metadata.mtime);
        pax.time("atime", metadata.atime);
        for xattr in inode.xattrs() {
            let xattr = xattr?;
            match xattr.name.to_str() {
                Some(name) => pax.add(format!("SCHILY.xattr.{name}"), xattr.value),
                None => {
                    let (path, name) = (path.display(), xattr.name.display());
                    eprintln!("WARNING: {path}: attribute {name} left out");
                }
            }
        }
        let name = archive_name(path, metadata.file_type);
        put_name(&mut header.as_ustar_mut().expect("made as one").name, &name);
        pax.add("path", name);
        Ok((header, pax))
    }

    /// Writes an entry: its records, its header and `data`.
    fn append(&mut self, mut header: Header, pax: &Pax, data: impl Read) -> anyhow::Result<()> {
        let records = pax.0.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        self.builder.append_pax_extensions(records)?;
        header.set_cksum();
        self.builder.append(&header, data)?;
        Ok(())
    }

    fn link(
        &mut self,
        path: &Path,
        inode: &Inode,
        target: Vec<u8>,
        kind: EntryType,
    ) -> anyhow::Result<()> {
        let (mut header, mut pax) = Self::describe(path, inode, kind)?;
        put_name(&mut header.as_ustar_mut().expect("made as one").linkname, &target);
        pax.add("linkpath", target);
        self.append(header, &pax, io::empty())
    }

    fn device(&mut self, path: &Path, inode: &Inode, kind: EntryType) -> anyhow::Result<()> {
        let (mut header, pax) = Self::describe(path, inode, kind)?;
        let (major, minor) = inode.metadata().device;
        header.set_device_major(major)?;
        header.set_device_minor(minor)?;
        self.append(header, &pax, io::empty())
    }

    fn file(&mut self, path: &Path, file: &File) -> anyhow::Result<()> {
        let (mut header, mut pax) = Self::describe(path, file, EntryType::Regular)?;
        let ranges = file.data_ranges()?;
        let len_bytes = file.len_bytes();
        let data_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut map = Vec::new();
        if data_bytes < len_bytes {
            map = sparse_map(&ranges, len_bytes);
            pax.add("GNU.sparse.major", "1");
            pax.add("GNU.sparse.minor", "0");
            let (_, name) = pax.0.iter().find(|(key, _)| key == "path").expect("described");
            pax.add("GNU.sparse.name", name.clone());
            pax.add("GNU.sparse.realsize", len_bytes.to_string());
        }
        let stored_bytes = map.len() as u64 + data_bytes;
        // The header's field has eleven octal digits.
        if stored_bytes >= 1 << 33 {
            pax.add("size", stored_bytes.to_string());
        }
        header.set_size(stored_bytes);
        self.written_bytes += stored_bytes;
        let content = Content { file, ranges: ranges.into_iter(), current: 0..0 };
        self.append(header, &pax, map.as_slice().chain(content))?;
        self.progress.set(self.written_bytes);
        Ok(())
    }
}

impl<W: Write> Visitor for Archive<W> {
    fn enter(&mut self, node: &Node<'_>) -> anyhow::Result<bool> {
        let (header, pax) = Self::describe(node.path, node.inode, EntryType::Directory)?;
        self.append(header, &pax, io::empty())?;
        Ok(true)
    }

    fn visit(&mut self, node: &Node<'_>) -> anyhow::Result<()> {
        let (path, inode) = (node.path, node.inode);
        if let Some(met_as) = node.met_as {
            let target = archive_name(met_as, inode.file_type());
            return self.link(path, inode, target, EntryType::Link);
        }
        match inode.file_type() {
            FileType::Regular => self.file(path, &inode.clone().into_file()?),
            FileType::Symlink => {
                let target = inode.link_target()?.into_os_string().into_encoded_bytes();
                self.link(path, inode, target, EntryType::Symlink)
            }
            FileType::BlockDevice => self.device(path, inode, EntryType::Block),
            FileType::CharDevice => self.device(path, inode, EntryType::Char),
            FileType::Fifo => self.device(path, inode, EntryType::Fifo),
            FileType::Socket => {
                eprintln!("WARNING: {}: socket left out", path.display());
                Ok(())
            }
            FileType::Directory => unreachable!("directories are entered"),
        }
    }

    fn leave(&mut self, _: &Node<'_>) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Reads the data of a file without its holes.
struct Content<'a> {
    file: &'a File,
    ranges: vec::IntoIter<Range<u64>>,
    current: Range<u64>,
}

impl Read for Content<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.ranges.next() {
                Some(range) => self.current = range,
                None => return Ok(0),
            }
        }
        let want = (self.current.end - self.current.start).min(buf.len() as u64) as usize;
        let len = self.file.read_at(&mut buf[..want], self.current.start)?;
        self.current.start += len as u64;
        Ok(len)
    }
}

/// The map of a sparse file in GNU's format 1.0: a count, then offset and length of each range of
/// data, a line each, padded to a whole block. A file that ends in a hole ends with an empty range.
fn sparse_map(ranges: &[Range<u64>], len_bytes: u64) -> Vec<u8> {
    let mut ranges = ranges.to_vec();
    if ranges.last().is_none_or(|last| last.end < len_bytes) {
        ranges.push(len_bytes..len_bytes);
    }
    let numbers = ranges.iter().flat_map(|range| [range.start, range.end - range.start]);
    let lines = [ranges.len() as u64].into_iter().chain(numbers);
    let mut map: Vec<u8> = lines.flat_map(|number| format!("{number}\n").into_bytes()).collect();
    map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
    map
}

/// The name of an entry: relative, and with a slash after that of a directory.
fn archive_name(path: &Path, file_type: FileType) -> Vec<u8> {
    let mut name = b"./".to_vec();
    name.extend_from_slice(path.as_os_str().as_bytes());
    if file_type == FileType::Directory && !path.as_os_str().is_empty() {
        name.push(b'/');
    }
    name
}

/// Writes as much of a name as fits into a field of a header; the record has the whole.
fn put_name(field: &mut [u8], name: &[u8]) {
    let len = name.len().min(field.len());
    field[..len].copy_from_slice(&name[..len]);
}
