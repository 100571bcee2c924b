//! Unpacking a tar archive.
//!
//! The archive may be hostile: names that lead out of the destination are refused, nothing is
//! created below an inode that is no directory, a map of a sparse file is bounded, and data is
//! copied in pieces.
//!
//! # Invariants
//! - A directory that the archive names before its content never lets more users in than the archive
//!   says: until its attributes come, at last, it lets its owner alone in, or is as mkdir(2) makes it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail, ensure};
use larder_filesystem::{NewInode, Timestamp};
use tar::EntryType;

use super::acl_text;
use super::reader::{Member, TarReader};
use super::sparse::{Ranges, read_map};
use crate::course::Course;
use crate::destination::{self, ACL_RECORDS, Destination};
use crate::keep::Keep;

/// Permissions of directories without an entry in the archive.
const PERMISSIONS: u32 = 0o755;
const DIRECTORY: u32 = 0o040_000;

/// Unpacks into one directory.
pub struct Unpack<'a> {
    destination: &'a mut dyn Destination,
    /// The path of the directory in the destination.
    directory: PathBuf,
    keep: Keep,
    /// Directories that are known to be such, and not links; and whether they were made here.
    known: HashMap<PathBuf, bool>,
    /// Directories with their final attributes: creating entries in them changes their times.
    directories: Vec<(PathBuf, Attributes)>,
    course: Course<'a>,
}

/// The kernel's bound of a name (`NAME_MAX`).
const MOST_NAME_BYTES: usize = 255;

/// An entry without its data, from its header and its PAX records.
#[derive(Default)]
struct Attributes {
    permissions: u32,
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
    xattrs: Vec<(OsString, Vec<u8>)>,
    sparse: Sparse,
}

/// What GNU tar's records say about a file with holes.
#[derive(Default)]
struct Sparse {
    /// Version 1: the map is before the data.
    has_leading_map: bool,
    name: Option<Vec<u8>>,
    len_bytes: Option<u64>,
    /// Versions 0.0 and 0.1: offsets and lengths in turn.
    numbers: Vec<u64>,
}

impl<'a> Unpack<'a> {
    /// Unpacks into the directory at `directory`.
    pub fn new(
        destination: &'a mut dyn Destination,
        directory: PathBuf,
        keep: Keep,
        course: Course<'a>,
    ) -> Self {
        let known = HashMap::from([(directory.clone(), false)]);
        Self { destination, known, directory, keep, directories: Vec::new(), course }
    }

    /// Unpacks all of an archive.
    ///
    /// # Errors
    /// The archive cannot be read any further; the copy ends before it is complete.
    pub fn unpack(&mut self, archive: impl BufRead) -> anyhow::Result<()> {
        let mut archive = TarReader::new(archive);
        loop {
            let member = match archive.next_member() {
                Ok(Some(member)) => member,
                Ok(None) => break,
                // What came before stays, as with tar -x.
                Err(error) => {
                    let at = archive.position();
                    let error = error.context(format!("cannot read the archive after byte {at}"));
                    self.note(Path::new("-"), &self.directory.clone(), Err(error))?;
                    break;
                }
            };
            self.course.check()?;
            let name = Path::new(OsStr::from_bytes(&member.name));
            let unpacked = self.member(&member, &mut archive);
            let place = self.place(&member.name).unwrap_or_else(|_| self.directory.clone());
            self.note(name, &place, unpacked)?;
            self.course.reach(archive.position())?;
        }
        for (path, attributes) in std::mem::take(&mut self.directories).into_iter().rev() {
            let finished = self.finish(&path, true, attributes);
            let name = path.strip_prefix(&self.directory).unwrap_or(&path).to_owned();
            self.note(&name, &path, finished)?;
        }
        Ok(())
    }

    /// How far the copy is.
    pub fn into_course(self) -> Course<'a> {
        self.course
    }

    fn note(&mut self, name: &Path, path: &Path, result: anyhow::Result<()>) -> anyhow::Result<()> {
        let path = self.destination.shown(path);
        self.course.note(name, &path, result)
    }

    fn member(
        &mut self,
        member: &Member,
        data: &mut TarReader<impl BufRead>,
    ) -> anyhow::Result<()> {
        self.make_member(member, data)?;
        self.course.count();
        Ok(())
    }

    fn make_member(
        &mut self,
        member: &Member,
        data: &mut TarReader<impl BufRead>,
    ) -> anyhow::Result<()> {
        let attributes = Attributes::of(member)?;
        let path = self.place(attributes.sparse.name.as_ref().unwrap_or(&member.name))?;
        let kind = member.header.entry_type();
        // Archives from before there was a type for directories end their names with a slash.
        let is_directory = kind.is_dir() || kind.is_file() && member.name.ends_with(b"/");
        if path == self.directory {
            ensure!(is_directory, "it has no name");
            self.directories.push((path, attributes));
            return Ok(());
        }
        self.make_parents(path.parent().unwrap_or(Path::new("")))?;
        if is_directory {
            let is_in_new = path.parent().is_some_and(|it| self.known.get(it) == Some(&true));
            let was_there =
                if is_in_new { self.known.contains_key(&path) } else { self.is_directory(&path) };
            if !was_there {
                let new = self.keep.new_inode(DIRECTORY | attributes.permissions, 0o700);
                self.make_directory(&path, &new)?;
            }
            if was_there || self.keep == Keep::Everything {
                self.directories.push((path, attributes));
            }
            return Ok(());
        }
        if kind == EntryType::Link {
            let original = self.place(&member.link)?;
            ensure!(
                self.is_reached(&original),
                "the path of the original leads through a symbolic link"
            );
            if original == path {
                return Ok(());
            }
            return self.destination.link(&path, &original);
        }
        self.make(member, data, &path, &attributes)?;
        if self.keep == Keep::Everything {
            self.finish(&path, !kind.is_symlink(), attributes)?;
        }
        Ok(())
    }

    /// The path for a name in the archive.
    fn place(&self, name: &[u8]) -> anyhow::Result<PathBuf> {
        let mut path = self.directory.clone();
        for component in Path::new(OsStr::from_bytes(name)).components() {
            match component {
                Component::Normal(part) => {
                    let is_name = part.len() <= MOST_NAME_BYTES && !part.as_bytes().contains(&0);
                    ensure!(is_name, "a name has at most 255 bytes, and no zero");
                    path.push(part);
                }
                Component::CurDir | Component::RootDir => {}
                _ => bail!("the name leads out of the destination"),
            }
        }
        Ok(path)
    }

    /// Whether all parents of a path are directories.
    fn is_reached(&mut self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.is_directory(parent))
    }

    fn is_directory(&mut self, path: &Path) -> bool {
        if self.known.contains_key(path) {
            return true;
        }
        if !path.starts_with(&self.directory) || !self.destination.is_directory(path) {
            return false;
        }
        let is_reached = self.is_reached(path);
        if is_reached {
            self.known.insert(path.to_owned(), false);
        }
        is_reached
    }

    fn make_parents(&mut self, path: &Path) -> anyhow::Result<()> {
        if self.is_directory(path) {
            return Ok(());
        }
        let mut missing: Vec<&Path> =
            path.ancestors().take_while(|at| *at != self.directory).collect();
        missing.reverse();
        for directory in missing {
            if !self.is_directory(directory) {
                let new = self.keep.new_inode(DIRECTORY | PERMISSIONS, PERMISSIONS);
                self.make_directory(directory, &new)?;
            }
        }
        Ok(())
    }

    /// Creates a directory whose parent is one, unless it exists.
    fn make_directory(&mut self, path: &Path, new: &NewInode) -> anyhow::Result<()> {
        self.destination.make_directory(path, new)?;
        self.known.insert(path.to_owned(), true);
        Ok(())
    }

    fn make(
        &mut self,
        member: &Member,
        data: &mut TarReader<impl BufRead>,
        path: &Path,
        attributes: &Attributes,
    ) -> anyhow::Result<()> {
        let kind = member.header.entry_type();
        // What is not kept may be limited by a default ACL, and so is asked for now.
        let new = |file_type| self.keep.new_inode(file_type | attributes.permissions, 0o600);
        let node_type = match kind {
            EntryType::Symlink => {
                return self.destination.make_symlink(path, OsStr::from_bytes(&member.link));
            }
            EntryType::Block => 0o060_000,
            EntryType::Char => 0o020_000,
            EntryType::Fifo => 0o010_000,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.destination.make_file(path, &new(0o100_000))?;
                return self.content(member, data, path, &attributes.sparse);
            }
            other => bail!("members of type {:?} are not known", char::from(other.as_byte())),
        };
        let header = &member.header;
        let number = |number: io::Result<Option<u32>>| number.map(Option::unwrap_or_default);
        let device = match kind {
            EntryType::Fifo => (0, 0),
            _ => (number(header.device_major())?, number(header.device_minor())?),
        };
        let new = NewInode { device, ..new(node_type) };
        self.destination.make_node(path, &new)
    }

    /// Copies the data of a file; holes stay holes.
    fn content(
        &mut self,
        member: &Member,
        data: &mut TarReader<impl BufRead>,
        path: &Path,
        sparse: &Sparse,
    ) -> anyhow::Result<()> {
        let (len_bytes, ranges) = match &member.sparse {
            Some((len_bytes, ranges)) => (*len_bytes, ranges.clone()),
            None => sparse.ranges(member.len_bytes, data)?,
        };
        let mut written_to = 0;
        for range in ranges.within(len_bytes)? {
            let mut offset = range.start;
            while offset < range.end {
                let piece = data.fill_buf()?;
                ensure!(!piece.is_empty(), "its data ends too early");
                let len =
                    piece.len().min(usize::try_from(range.end - offset).unwrap_or(usize::MAX));
                self.destination.write(path, &piece[..len], offset)?;
                data.consume(len);
                offset += len as u64;
                written_to = offset;
                self.course.reach(data.position())?;
            }
        }
        if written_to != len_bytes {
            self.destination.set_len(path, len_bytes)?;
        }
        Ok(())
    }

    fn finish(
        &mut self,
        path: &Path,
        has_permissions: bool,
        attributes: Attributes,
    ) -> anyhow::Result<()> {
        let permissions = has_permissions.then_some(attributes.permissions);
        let set = match self.keep {
            Keep::Permissions { umask } => destination::Attributes {
                permissions: permissions.map(|permissions| permissions & 0o777 & !umask),
                ..Default::default()
            },
            Keep::Everything => destination::Attributes {
                permissions,
                uid: attributes.uid,
                gid: attributes.gid,
                atime: attributes.atime,
                mtime: attributes.mtime,
                xattrs: Some(attributes.xattrs),
            },
        };
        self.course.finish(self.destination, path, set)
    }
}

impl Sparse {
    /// The length of a file, and the ranges of its data, of `stored_bytes`. Reads a map before the
    /// data.
    fn ranges(
        &self,
        stored_bytes: u64,
        data: &mut TarReader<impl BufRead>,
    ) -> anyhow::Result<(u64, Ranges)> {
        let len_bytes = || self.len_bytes.context("a sparse file without a length");
        if self.has_leading_map {
            Ok((len_bytes()?, read_map(data)?))
        } else if !self.numbers.is_empty() {
            Ok((len_bytes()?, Ranges::of_numbers(&self.numbers)?))
        } else {
            Ok((stored_bytes, Ranges::whole(stored_bytes)))
        }
    }
}

impl Attributes {
    fn of(member: &Member) -> anyhow::Result<Self> {
        let header = &member.header;
        // Before 1970 GNU's headers have the number's two's complement.
        let seconds = header.mtime()? as i64;
        let id = |id: u64| u32::try_from(id).context("its owner is no valid number");
        let mut attributes = Self {
            permissions: header.mode()? & 0o7777,
            mtime: Some(Timestamp { seconds, nanoseconds: 0 }),
            ..Self::default()
        };
        for (key, value) in &member.records {
            attributes.record(key, value)?;
        }
        // If a record says more, the field need not be valid.
        if attributes.uid.is_none() {
            attributes.uid = Some(id(header.uid()?)?);
        }
        if attributes.gid.is_none() {
            attributes.gid = Some(id(header.gid()?)?);
        }
        Ok(attributes)
    }

    /// Sets an extended attribute, which an archive may have in two forms.
    fn set_xattr(&mut self, name: OsString, value: Vec<u8>) {
        self.xattrs.retain(|(known, _)| *known != name);
        self.xattrs.push((name, value));
    }

    /// Adds a PAX record.
    fn record(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        const XATTR: &[u8] = b"SCHILY.xattr.";
        if let Some(name) = key.strip_prefix(XATTR) {
            self.set_xattr(OsString::from_vec(name.to_vec()), value.to_vec());
            return Ok(());
        }
        let text = || std::str::from_utf8(value).context("a record is no text");
        if let Some((acl, _)) = ACL_RECORDS.iter().find(|(_, record)| record.as_bytes() == key) {
            if !self.xattrs.iter().any(|(name, _)| name == acl) {
                self.set_xattr(OsString::from(acl), acl_text::parse(text()?)?);
            }
            return Ok(());
        }
        let number = || text()?.parse::<u64>().context("a record is no number");
        match key {
            b"uid" => self.uid = Some(number()?.try_into()?),
            b"gid" => self.gid = Some(number()?.try_into()?),
            b"mtime" => self.mtime = Some(parse_time(text()?)?),
            b"atime" => self.atime = Some(parse_time(text()?)?),
            b"GNU.sparse.major" => self.sparse.has_leading_map = number()? == 1,
            b"GNU.sparse.name" => self.sparse.name = Some(value.to_vec()),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => {
                self.sparse.len_bytes = Some(number()?);
            }
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => self.sparse.numbers.push(number()?),
            b"GNU.sparse.map" => {
                for number in text()?.split(',') {
                    self.sparse.numbers.push(number.parse().context("a map is no numbers")?);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads a time in seconds since 1970, with a fraction; the fraction of a negative one counts back.
fn parse_time(text: &str) -> anyhow::Result<Timestamp> {
    let invalid = || format!("'{text}' is not a time");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let seconds: i64 = whole.parse().with_context(invalid)?;
    let nanoseconds = format!("{fraction:0<9.9}").parse::<i64>().with_context(invalid)?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(is_number(whole) && is_number(fraction), invalid());
    let total = sign * (i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds));
    Ok(Timestamp {
        seconds: total.div_euclid(1_000_000_000).try_into().with_context(invalid)?,
        nanoseconds: total.rem_euclid(1_000_000_000) as u32,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufReader, Read};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::OntoHost;

    /// An archive whose reader looks at the permissions of a directory.
    struct Watching<'w> {
        archive: &'w [u8],
        directory: &'w Path,
        seen: &'w mut Vec<u32>,
    }

    impl Read for Watching<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let found = fs::metadata(self.directory);
            self.seen.extend(found.map(|found| found.permissions().mode() & 0o777));
            let piece = into.len().min(512);
            self.archive.read(&mut into[..piece])
        }
    }

    #[test]
    fn a_private_directory_is_private_while_it_is_filled() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut add = |name: &str, entry_type: EntryType, mode: u32, data: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(entry_type);
            header.set_mode(mode);
            header.set_size(data.len() as u64);
            let (uid, gid) = larder_platform::user();
            header.set_uid(uid.into());
            header.set_gid(gid.into());
            header.set_mtime(0);
            builder.append_data(&mut header, name, data).unwrap();
        };
        add("private/", EntryType::Directory, 0o750, b"");
        add("private/file", EntryType::Regular, 0o644, &[7; 5000]);
        let archive = builder.into_inner().unwrap();
        let folder = std::env::temp_dir().join(format!("larder-unpack-{}", std::process::id()));
        // While they are filled, and at last.
        let kinds = [
            (Keep::Everything, [0o700, 0o750]),
            (Keep::Permissions { umask: 0o027 }, [0o750, 0o750]),
        ];
        for (keep, expected) in kinds {
            fs::create_dir_all(&folder).unwrap();
            let directory = folder.join("private");
            let mut seen = Vec::new();
            let watching = Watching { archive: &archive, directory: &directory, seen: &mut seen };
            let mut onto = OntoHost::below(&folder).unwrap();
            let mut unpack = Unpack::new(&mut onto, PathBuf::new(), keep, Course::strict());
            unpack.unpack(BufReader::with_capacity(512, watching)).unwrap();
            drop(unpack);
            drop(onto);
            seen.dedup();
            seen.extend(fs::metadata(&directory).map(|it| it.permissions().mode() & 0o777));
            fs::remove_dir_all(&folder).unwrap();
            assert_eq!(seen, expected, "{keep:?}");
        }
    }

    #[test]
    fn times_before_1970_count_nanoseconds_forward() {
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!(parse_time("12.5").unwrap(), time(12, 500_000_000));
        assert_eq!(parse_time("12").unwrap(), time(12, 0));
        assert_eq!(parse_time("-0.25").unwrap(), time(-1, 750_000_000));
        assert_eq!(parse_time("-3").unwrap(), time(-3, 0));
        assert_eq!(parse_time("1.0000000019").unwrap(), time(1, 1));
        for text in ["", "-", "1.-5", "1.5e3", "--1", "99999999999999999999"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
