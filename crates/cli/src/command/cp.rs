//! `larder cp`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufReader, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder::{FileType, Inode};
use larder_copy::{
    DANGLING, Destination, Extract, Gone, IntoImage, Keep, Mapped, OntoHost, Transplant, Unpack,
};
use larder_format::OwnerMap;

use crate::copying;
use crate::ingest::Ingest;
use crate::interrupt::{self, Interrupted};
use crate::message::message;
use crate::on_mount::{self, OnMount, OntoMount};
use crate::outcome::{Outcome, exit_code};
use crate::owner::MapOptions;
use crate::progress::Progress;
use crate::source::{PathSource, Writing, warn_of_bad_copies};
use crate::target::{Target, is_image, names_image, parent_of};
use crate::umask::umask;

/// Bytes of an archive that are read at a time.
const ARCHIVE_BYTES: usize = 256 << 10;

/// Copy files out of a file system that is not mounted, into it, or within it; likewise with mounts
/// of larder
///
/// Examples:
///   larder cp disk.img:/etc/fstab .
///   larder cp -a disk.img:/home backup
///   larder cp -a notes disk.img:/home
///   larder cp -a disk.img:/home other.img:/home
///   tar -c etc | larder cp -a - disk.img:/backup
///   larder cp -a photos /mnt
///   larder cp -a /mnt/photos /mnt/photos.before
///   larder cp -a /mnt/photos /srv
///   tar -c etc | larder cp -a - /mnt/backup
///
/// The destination IMAGE:/PATH copies into a file system; this is one commit or more. A source - is
/// a tar archive on standard input, which is unpacked into the destination; an archive that is named
/// is copied as a file. Copies within one image or one mount share their data with the originals.
/// From one image into another, --device and --subvolid apply to the destination. A copy of the root
/// directory, or of DIRECTORY/., is its content.
///
/// A file that is in the way is overwritten, as by cp: it keeps its permissions, owner, ACL, extended
/// attributes and other names, which --archive then sets to those of the original. One with other
/// names is replaced by --archive. The destination may be a symbolic link to a file. No other link
/// on the way to a copy is followed; such a link is replaced.
///
/// With --map-users 100000:0:65536 and --map-groups likewise, files of a container whose users begin
/// at 100000 on this system get the owners that the container sees, and the other way round when
/// they are copied out. ACLs and capabilities are mapped too. An id in no range stays as it is, or
/// becomes --squash.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Cp {
    /// Directories too, with all that is in them
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Like --recursive, and keep modes, owners, times, extended attributes, ACLs and hard links
    #[arg(short, long)]
    archive: bool,
    #[command(flatten)]
    map: MapOptions,
    #[command(flatten)]
    source: PathSource,
    /// What to copy
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<OsString>,
    /// A directory to copy into, or the name of the copy
    #[arg(value_name = "DEST")]
    destination: PathBuf,
}

impl Cp {
    pub fn run(self) -> Outcome {
        let map = self.map.map()?;
        ensure!(
            self.archive || map.is_empty(),
            "copies without --archive belong to the user who makes them: add --archive"
        );
        if names_image(self.destination.as_os_str()) {
            return self.copy_in(&map);
        }
        interrupt::watch()?;
        if self.sources.iter().all(|source| source == "-" || is_of_this_system(source)) {
            let takes_directories = self.recursive || self.archive;
            let options =
                Copying { keep: self.keep(), takes_directories, overwrites: true, map: &map };
            return copy_here(&self.sources, &self.destination, options).map(exit_code);
        }
        let into = self.destination.is_dir();
        let mut copied = Copied::default();
        if self.sources.len() > 1 && !into {
            bail!("{}: several sources need a directory", self.destination.display());
        }
        let turned = map.turned();
        let mut failures = 0;
        for source in &self.sources {
            failures += told(self.copy_out(source, into, &mut copied, &turned))?;
        }
        Ok(exit_code(failures))
    }

    /// Copies from an image to this system. Returns how many failures were reported.
    fn copy_out(
        &self,
        source: &OsStr,
        into: bool,
        copied: &mut Copied,
        map: &OwnerMap,
    ) -> anyhow::Result<usize> {
        let inode = self.source.find(source, !self.archive)?;
        let is_directory = inode.file_type() == FileType::Directory;
        self.expect_taken(source, is_directory)?;
        let is_file = inode.file_type() == FileType::Regular;
        let destination = &followed(&self.destination, is_file && !into)?;
        let (parent, target) = place(destination, source, &inode, into)?;
        if !is_directory && !copied.add(source, &parent.join(&target)) {
            return Ok(1);
        }
        let named = || {
            let (source, destination) = (source.display(), self.destination.display());
            format!("cannot copy {source} to {destination}")
        };
        let mut host = OntoHost::below(parent).with_context(named)?;
        let mut host = Mapped::new(&mut host, map);
        let progress = copying::shown(Progress::of_bytes());
        let mut extract = Extract::new(&mut host, target, self.keep(), progress);
        let ended = extract.copy(&inode, Path::new(source));
        let failures = copying::ended(ended, &extract.into_course()).with_context(named)?;
        warn_of_bad_copies(inode.subvolume().filesystem());
        Ok(failures)
    }

    fn expect_taken(&self, source: &OsStr, is_directory: bool) -> anyhow::Result<()> {
        expect_taken(source, is_directory, self.recursive || self.archive)
    }

    fn keep(&self) -> Keep {
        if self.archive { Keep::Everything } else { Keep::Permissions { umask: umask() } }
    }

    fn copy_in(&self, map: &OwnerMap) -> Outcome {
        self.source.change(self.destination.as_os_str(), |writing| self.copy_into(writing, map))
    }

    fn copy_into(&self, writing: &Writing, map: &OwnerMap) -> anyhow::Result<usize> {
        // Opening had nothing to undo: a signal ended it at once.
        interrupt::watch()?;
        let destination = PathBuf::from(writing.path(self.destination.as_os_str())?);
        if self.sources == ["-"] {
            writing.start.open_directory(&destination)?;
            let mut image = IntoImage::new(&writing.start, writing.name());
            let mut image = Mapped::new(&mut image, map);
            return unpack_input(&mut image, destination, self.keep());
        }
        let into = writing.start.open_directory(&destination).is_ok();
        let shown = self.destination.display();
        ensure!(into || self.sources.len() == 1, "{shown}: several sources need a directory");
        let mut between = 0;
        let mut image = IntoImage::new(&writing.start, writing.name());
        let mut image = Mapped::new(&mut image, map);
        let mut ingest = Ingest::new(&mut image, self.keep(), &self.sources);
        let mut copied = Copied::default();
        for source in &self.sources {
            let path = Path::new(source);
            if names_image(source) && path.symlink_metadata().is_err() {
                between += told(self.copy_between(source, writing, map, &destination, into))?;
                continue;
            }
            let unfit = told(self.expect_taken(source, path.is_dir()).map(|()| 0))?;
            if unfit > 0 {
                between += unfit;
                continue;
            }
            let target = match name_of(path) {
                Some(name) if into => destination.join(name),
                _ => destination.clone(),
            };
            if !path.is_dir() && !copied.add(source, &writing.shown(&target)) {
                between += 1;
                continue;
            }
            ingest.copy(path, &target)?;
        }
        Ok(ingest.failures() + between)
    }

    /// Copies from an image into the open one. Returns how many copies failed.
    fn copy_between(
        &self,
        source: &OsStr,
        writing: &Writing,
        map: &OwnerMap,
        destination: &Path,
        into: bool,
    ) -> anyhow::Result<usize> {
        let Target { image, path } = Target::parse(source);
        let path = Path::new(OsStr::from_bytes(&path));
        writing.expect_not_earlier(&image)?;
        let is_same = writing.is_on(&image);
        let inode = if is_same {
            let found =
                if self.archive { writing.start.lookup(path) } else { writing.start.resolve(path) };
            found.with_context(|| source.display().to_string())?
        } else {
            self.source.of_other_image().find(source, !self.archive)?
        };
        self.expect_taken(source, inode.file_type() == FileType::Directory)?;
        let target = match name_of(path) {
            Some(name) if into => destination.join(name),
            _ => destination.to_owned(),
        };
        let shown = writing.shown(&target);
        let course = copying::shown(Progress::of_bytes());
        let mut transplant =
            Transplant::new(&writing.start, target, self.keep(), map.clone(), is_same, course);
        let copied = transplant.copy(&inode, Path::new(source), &shown);
        let failures = copying::ended(copied, &transplant.into_course())?;
        warn_of_bad_copies(inode.subvolume().filesystem());
        Ok(failures)
    }
}

/// Fails if `source` is a directory and none are copied.
fn expect_taken(source: &OsStr, is_directory: bool, takes: bool) -> anyhow::Result<()> {
    ensure!(!is_directory || takes, "{}: is a directory (use --recursive)", source.display());
    Ok(())
}

/// The failures of one source. An error is reported, and the others are copied, except after a
/// signal.
fn told(copied: anyhow::Result<usize>) -> anyhow::Result<usize> {
    copied.or_else(|error| {
        if Interrupted::behind(&error).is_some() || Gone::is_behind(&error) {
            return Err(error);
        }
        eprintln!("ERROR: {}", message(&error));
        Ok(1)
    })
}

/// The directory that the copy goes to, and its path there.
fn place<'d>(
    destination: &'d Path,
    source: &OsStr,
    inode: &Inode,
    into: bool,
) -> anyhow::Result<(&'d Path, PathBuf)> {
    let path = Target::parse(source).path;
    let name = name_of(Path::new(OsStr::from_bytes(&path)));
    if into {
        if let Some(name) = name {
            return Ok((destination, name.into()));
        }
        if inode.file_type() != FileType::Directory {
            bail!("{}: has no name", source.display());
        }
        return Ok((destination, PathBuf::new()));
    }
    let name = destination.file_name().context("the destination has no name")?;
    Ok((parent_of(destination), name.into()))
}

/// How files of this system are copied.
#[derive(Clone, Copy)]
pub struct Copying<'a> {
    pub keep: Keep,
    pub takes_directories: bool,
    /// A file in the way stays, and gets the content. Otherwise the copy replaces it.
    pub overwrites: bool,
    /// From the owners of originals to those of copies.
    pub map: &'a OwnerMap,
}

/// Files that this command has made: none of them is overwritten by a second source.
#[derive(Default)]
struct Copied(HashSet<PathBuf>);

impl Copied {
    /// Notes that `source`, which is no directory, is copied to `target`. Reports it if another
    /// source was, and returns false.
    fn add(&mut self, source: &OsStr, target: &Path) -> bool {
        let is_new = self.0.insert(target.to_owned());
        if !is_new {
            let (source, target) = (source.display(), target.display());
            eprintln!("ERROR: {source}: will not overwrite {target}, which was just made");
        }
        is_new
    }
}

/// The file that `destination` leads to, if it is a symbolic link that a copy of a file overwrites
/// through (`overwrites`).
fn followed(destination: &Path, overwrites: bool) -> anyhow::Result<PathBuf> {
    let is_link = destination.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if !is_link || !overwrites {
        return Ok(destination.to_owned());
    }
    ensure!(destination.exists(), "{}: {DANGLING}", destination.display());
    Ok(destination.canonicalize()?)
}

/// Copies files of this system to `destination`, or into it if it is a directory: onto a mount of
/// larder, or from such mounts. Returns how many failures were reported.
fn copy_here(
    sources: &[OsString],
    destination: &Path,
    options: Copying<'_>,
) -> anyhow::Result<usize> {
    let into = destination.is_dir();
    let is_file = |source: &OsString| {
        let path = Path::new(source);
        let found =
            if options.takes_directories { path.symlink_metadata() } else { path.metadata() };
        found.is_ok_and(|found| found.is_file())
    };
    let destination = &followed(destination, !into && sources.iter().all(is_file))?;
    let base = if into { destination } else { parent_of(destination) };
    let is_on_ours = |source: &OsString| {
        let path = Path::new(source);
        match path.symlink_metadata() {
            Ok(found) => on_mount::is_ours(if found.is_dir() { path } else { parent_of(path) }),
            // It only has to be reported.
            Err(_) => true,
        }
    };
    let is_out = !on_mount::is_ours(base) && sources.iter().all(is_on_ours);
    if !is_out {
        return onto_mount(sources, destination, options);
    }
    let named = || format!("cannot copy to {}", destination.display());
    let mut host = OntoHost::below(base).with_context(named)?;
    let map = options.map.turned();
    copy_all(sources, destination, &mut Mapped::new(&mut host, &map), options)
}

/// Copies files of this system onto a mount of larder: to `destination`, or into it if it is a
/// directory. Returns how many failures were reported.
pub fn onto_mount(
    sources: &[OsString],
    destination: &Path,
    options: Copying<'_>,
) -> anyhow::Result<usize> {
    let Copying { keep, overwrites, map, .. } = options;
    let into = destination.is_dir();
    let is_archive = sources == ["-"];
    ensure!(
        into || !is_archive,
        "{}: an archive is unpacked into a directory",
        destination.display()
    );
    let base = if into { destination } else { parent_of(destination) };
    let mut mount = OntoMount::new(OnMount::below(base, destination)?, keep, overwrites)?;
    let mut mapped = Mapped::new(&mut mount, map);
    let failures = if is_archive {
        unpack_input(&mut mapped, PathBuf::new(), keep)?
    } else {
        copy_all(sources, destination, &mut mapped, options)?
    };
    Ok(failures + mount.finish()?)
}

/// Copies files of this system. `place` starts in the directory `destination`, or in the one that
/// contains it. Returns how many failures were reported.
fn copy_all(
    sources: &[OsString],
    destination: &Path,
    place: &mut dyn Destination,
    options: Copying<'_>,
) -> anyhow::Result<usize> {
    let shown = destination.display();
    let into = destination.is_dir();
    ensure!(into || sources.len() == 1, "{shown}: several sources need a directory");
    let mut ingest = Ingest::new(place, options.keep, sources);
    let mut copied = Copied::default();
    let mut refused = 0;
    for source in sources {
        let path = Path::new(source);
        let target = if into { name_of(path) } else { destination.file_name() };
        ensure!(into || target.is_some(), "{shown}: has no name");
        let target = Path::new(target.unwrap_or_default());
        let whole = if into { &destination.join(target) } else { destination };
        let fits = expect_taken(source, path.is_dir(), options.takes_directories)
            .and_then(|()| expect_apart(path, whole));
        let unfit = told(fits.map(|()| 0))?;
        if unfit > 0 {
            refused += unfit;
            continue;
        }
        if !path.is_dir() && !copied.add(source, whole) {
            refused += 1;
            continue;
        }
        let original =
            if options.takes_directories { path } else { &on_mount::resolved(path, true)? };
        ingest.copy(original, target)?;
    }
    Ok(ingest.failures() + refused)
}

/// The name of a copy of `path` in another directory. A directory that ends with `.` or `..` is
/// copied as its content.
fn name_of(path: &Path) -> Option<&OsStr> {
    let parts = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
    let last = parts.into_iter().find(|part| !part.is_empty());
    path.file_name().filter(|_| !matches!(last, Some(b"." | b"..")))
}

/// Unpacks the archive on standard input. Returns how many failures were reported.
fn unpack_input(
    place: &mut dyn Destination,
    directory: PathBuf,
    keep: Keep,
) -> anyhow::Result<usize> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let metadata = input.metadata()?;
    let rest = if metadata.is_file() { Some((&input).stream_position()?) } else { None };
    let mut progress = Progress::of_bytes();
    if let Some(start) = rest {
        progress.expect(metadata.len().saturating_sub(start));
    }
    let mut unpack = Unpack::new(place, directory, keep, copying::shown(progress));
    let unpacked = unpack.unpack(BufReader::with_capacity(ARCHIVE_BYTES, input));
    copying::ended(unpacked, &unpack.into_course())
}

/// Whether a source is a file of this system, and neither an image nor in one.
fn is_of_this_system(source: &OsStr) -> bool {
    let path = Path::new(source);
    !(names_image(source) || path.is_file() && is_image(path))
}

/// Fails if `source` is not there, if both are one file, or if one lies in the other.
fn expect_apart(source: &Path, target: &Path) -> anyhow::Result<()> {
    let metadata = source.symlink_metadata().with_context(|| source.display().to_string())?;
    let is_same =
        |there: fs::Metadata| (there.dev(), there.ino()) == (metadata.dev(), metadata.ino());
    let shown = (source.display(), target.display());
    if target.symlink_metadata().is_ok_and(is_same) {
        bail!("'{}' and '{}' are the same file", shown.0, shown.1);
    }
    let is_inside =
        metadata.is_dir() && parent_of(target).canonicalize()?.starts_with(source.canonicalize()?);
    ensure!(!is_inside, "cannot copy a directory, '{}', into itself, '{}'", shown.0, shown.1);
    Ok(())
}
