//! `larder tar`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::vec;

use anyhow::Context;
use clap::Args;
use larder::{File, FileType, Inode, Metadata, Timestamp, WalkOptions, Walked, Xattr};
use larder_copy::{ACL_RECORDS, acl_text};
use tar::{Builder, EntryType, Header};

use crate::on_mount::{self, Walk};
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout_of_content;
use crate::progress::Progress;
use crate::source::{PathSource, warn_of_bad_copies};
use crate::target::Target;
use crate::tree::{Visited, Visitor, walk};

/// Write a tree to standard output as a tar archive: of a file system that is not mounted, or on a
/// mount of larder
///
/// Extended attributes, ACLs, hard links, sparse files and times to the nanosecond are kept, in the
/// form that GNU tar reads with --acls --xattrs --xattrs-include='*'.
///
/// On a mount the server reads the tree, faster than a program can. Only root and the user who
/// mounted it may ask for that; others use the system's tar.
///
/// Examples:
///   larder tar disk.img:/home | zstd > home.tar.zst
///   larder tar /mnt/home | zstd > home.tar.zst
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Tar {
    #[command(flatten)]
    source: PathSource,
    /// What to write; without a path, the root
    #[arg(value_name = "IMAGE:/PATH|PATH")]
    path: OsString,
}

impl Tar {
    pub fn run(self) -> Outcome {
        let out = io::BufWriter::with_capacity(1 << 20, stdout_of_content());
        let mut archive = Archive {
            builder: ManuallyDrop::new(Builder::new(out)),
            progress: Progress::of_bytes(),
            written_bytes: 0,
            top: PathBuf::new(),
        };
        let failures = if let Some(path) = self.source.mounted_path(&self.path)? {
            let written = write_mounted(path, &mut archive);
            written.with_context(|| path.display().to_string())?
        } else {
            let inode = self.source.find(&self.path, false)?;
            if inode.file_type() != FileType::Directory {
                let path = Target::parse(&self.path).path;
                let name = Path::new(OsStr::from_bytes(&path)).file_name();
                archive.top = name.context("it has no name")?.into();
            }
            let failures = walk(&inode, &mut archive)?;
            warn_of_bad_copies(inode.subvolume().filesystem());
            failures
        };
        ManuallyDrop::into_inner(archive.builder).into_inner()?.flush()?;
        Ok(exit_code(failures))
    }
}

/// Writes the tree at `path` on a mount. Returns how many failures were reported.
fn write_mounted(path: &Path, archive: &mut Archive<impl Write>) -> anyhow::Result<usize> {
    let path = &on_mount::resolved(path, false)?;
    let everything =
        WalkOptions { below: true, targets: true, xattrs: true, data: true, written: true };
    let mut walk = Walk::begin(path, everything)?;
    // Files with several names, by subvolume and number, and the first name of each.
    let mut met: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let mut directory = PathBuf::new();
    while let Some(walked) = walk.next()? {
        match walked {
            Walked::Directory { path, metadata, xattrs } => {
                directory = path.into();
                let original = Original { path: &directory, metadata: &metadata, xattrs };
                archive.empty(&original, EntryType::Directory)?;
            }
            Walked::Entry { name, metadata, target, xattrs, ranges } => {
                let path = directory.join(name);
                let id = (metadata.subvolume, metadata.inode);
                let has_names = metadata.nlink > 1 && metadata.file_type != FileType::Directory;
                let original = Original { path: &path, metadata: &metadata, xattrs };
                if let Some(met_as) = met.get(&id).filter(|_| has_names) {
                    archive.hard_link(&original, met_as)?;
                    continue;
                }
                match metadata.file_type {
                    // It comes again before its entries.
                    FileType::Directory => {}
                    FileType::Regular => {
                        let data = Data { walk: &mut walk, data: Vec::new(), read: 0 };
                        archive.file(&original, &ranges, data)?;
                    }
                    FileType::Symlink => {
                        archive.link(&original, target.into_encoded_bytes(), EntryType::Symlink)?;
                    }
                    _ => archive.node(&original)?,
                }
                if has_names {
                    met.insert(id, path);
                }
            }
            Walked::Failed { .. } => {}
        }
    }
    Ok(walk.failures())
}

/// The data of a file that a walk has come to.
struct Data<'w> {
    walk: &'w mut Walk,
    data: Vec<u8>,
    /// Bytes of `data` that were read.
    read: usize,
}

impl Read for Data<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.read == self.data.len() {
            self.read = 0;
            if self.walk.read(&mut self.data)?.is_none() {
                self.data.clear();
            }
        }
        let len = (&self.data[self.read..]).read(buf)?;
        self.read += len;
        Ok(len)
    }
}

/// Bytes of a tar block; headers and data are padded to it.
const BLOCK_BYTES: usize = 512;

/// Writes the inodes of a walk.
struct Archive<W: Write> {
    /// Dropping it would end the archive as if it were complete.
    builder: ManuallyDrop<Builder<W>>,
    progress: Progress,
    written_bytes: u64,
    /// The name of the operand, unless it is a directory.
    top: PathBuf,
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

/// An inode that is written, with all that is not its content.
struct Original<'a> {
    path: &'a Path,
    metadata: &'a Metadata,
    xattrs: Vec<Xattr>,
}

impl<'a> Original<'a> {
    fn of(path: &'a Path, inode: &Inode, metadata: &'a Metadata) -> larder::Result<Self> {
        let xattrs = inode.xattrs().collect::<larder::Result<_>>()?;
        Ok(Self { path, metadata, xattrs })
    }

    /// A header with the attributes, and records for those that do not fit.
    fn describe(&self, kind: EntryType) -> (Header, Pax) {
        let metadata = self.metadata;
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
        for Xattr { name, value } in &self.xattrs {
            let record = ACL_RECORDS.iter().find(|(acl, _)| name == acl);
            if let Some(((_, record), text)) = record.zip(acl_text::to_text(value)) {
                pax.add(*record, text);
            }
            match name.to_str() {
                Some(name) => pax.add(format!("SCHILY.xattr.{name}"), value.clone()),
                None => {
                    let (path, name) = (self.path.display(), name.display());
                    eprintln!("WARNING: {path}: attribute {name} left out");
                }
            }
        }
        let name = archive_name(self.path, metadata.file_type);
        put_name(&mut header.as_ustar_mut().expect("made as one").name, &name);
        pax.add("path", name);
        (header, pax)
    }
}

impl<W: Write> Archive<W> {
    /// Writes an entry: its records, its header and `data`.
    fn append(&mut self, mut header: Header, pax: &Pax, data: impl Read) -> anyhow::Result<()> {
        let records = pax.0.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        self.builder.append_pax_extensions(records)?;
        header.set_cksum();
        self.builder.append(&header, data)?;
        Ok(())
    }

    fn empty(&mut self, original: &Original<'_>, kind: EntryType) -> anyhow::Result<()> {
        let (header, pax) = original.describe(kind);
        self.append(header, &pax, io::empty())
    }

    fn link(
        &mut self,
        original: &Original<'_>,
        target: Vec<u8>,
        kind: EntryType,
    ) -> anyhow::Result<()> {
        let (mut header, mut pax) = original.describe(kind);
        put_name(&mut header.as_ustar_mut().expect("made as one").linkname, &target);
        pax.add("linkpath", target);
        self.append(header, &pax, io::empty())
    }

    fn hard_link(&mut self, original: &Original<'_>, met_as: &Path) -> anyhow::Result<()> {
        let target = archive_name(met_as, original.metadata.file_type);
        self.link(original, target, EntryType::Link)
    }

    /// Writes a device, a pipe or a socket.
    fn node(&mut self, original: &Original<'_>) -> anyhow::Result<()> {
        let kind = match original.metadata.file_type {
            FileType::BlockDevice => EntryType::Block,
            FileType::CharDevice => EntryType::Char,
            FileType::Fifo => EntryType::Fifo,
            _ => {
                eprintln!("WARNING: {}: socket left out", original.path.display());
                return Ok(());
            }
        };
        let (mut header, pax) = original.describe(kind);
        let (major, minor) = original.metadata.device;
        header.set_device_major(major)?;
        header.set_device_minor(minor)?;
        self.append(header, &pax, io::empty())
    }

    /// Writes a file, whose `ranges` have data that `content` yields.
    fn file(
        &mut self,
        original: &Original<'_>,
        ranges: &[Range<u64>],
        content: impl Read,
    ) -> anyhow::Result<()> {
        let (mut header, mut pax) = original.describe(EntryType::Regular);
        let len_bytes = original.metadata.size_bytes;
        let data_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut map = Vec::new();
        if data_bytes < len_bytes {
            map = sparse_map(ranges, len_bytes);
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
        self.append(header, &pax, map.as_slice().chain(content))?;
        self.progress.set(self.written_bytes);
        Ok(())
    }
}

impl<W: Write> Visitor for Archive<W> {
    fn enter(&mut self, node: &Visited<'_>) -> anyhow::Result<bool> {
        let metadata = node.inode.metadata();
        let original = Original::of(node.path, node.inode, &metadata)?;
        self.empty(&original, EntryType::Directory)?;
        Ok(true)
    }

    fn visit(&mut self, node: &Visited<'_>) -> anyhow::Result<()> {
        let metadata = node.inode.metadata();
        let path = if node.path == Path::new("") { self.top.clone() } else { node.path.to_owned() };
        let original = Original::of(&path, node.inode, &metadata)?;
        if let Some(met_as) = node.met_as {
            return self.hard_link(&original, met_as);
        }
        match metadata.file_type {
            FileType::Regular => {
                let file = &node.inode.clone().into_file()?;
                let ranges = file.data_ranges()?;
                let content = Content { file, ranges: ranges.clone().into_iter(), current: 0..0 };
                self.file(&original, &ranges, content)
            }
            FileType::Symlink => {
                let target = node.inode.link_target()?.into_os_string().into_encoded_bytes();
                self.link(&original, target, EntryType::Symlink)
            }
            _ => self.node(&original),
        }
    }

    fn leave(&mut self, _: &Visited<'_>) -> anyhow::Result<()> {
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
