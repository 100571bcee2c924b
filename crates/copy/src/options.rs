//! Copies in one call.

use std::fmt;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use larder_filesystem::{Inode, Subvolume};
use larder_format::OwnerMap;

use crate::archive::Unpack;
use crate::course::{Copied, Course, Event};
use crate::destination::Destination;
use crate::error::CopyError;
use crate::extract::Extract;
use crate::host::{Ingest, OntoHost};
use crate::image::IntoImage;
use crate::keep::Keep;
use crate::mapped::Mapped;
use crate::transplant::Transplant;

/// How to copy trees of files, and tar archives.
///
/// A copy has exactly the path that the call gives it. A directory that is there stays, and the copy
/// of a directory adds to it. Other things in the way of a copy are replaced, except a file in the
/// way of a file: it is overwritten, and keeps its other names unless the copy keeps everything.
/// Directories above a copy must exist.
///
/// After [`Filesystem::sync`](larder_filesystem::Filesystem::sync) the copies are durable.
pub struct CopyOptions<'o> {
    keep: Keep,
    owners: OwnerMap,
    course: Course<'o>,
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        Self { keep: Keep::Everything, owners: OwnerMap::default(), course: Course::strict() }
    }
}

impl fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions").field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl<'o> CopyOptions<'o> {
    /// Copies that keep everything, and end with the first failure.
    pub fn new() -> Self {
        Self::default()
    }

    /// What copies keep besides content.
    #[must_use]
    pub fn keep(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// From owners outside the file system to owners inside: those of copies that keep everything.
    /// A copy out of a file system turns the map round; one between subvolumes takes the map as it
    /// is.
    #[must_use]
    pub fn owners(self, owners: OwnerMap) -> Self {
        Self { owners, ..self }
    }

    /// Tells `observe` what happens, often. If it breaks off, the copy ends. As long as it does
    /// not, the copy goes on after failures; in the end the call fails all the same.
    #[must_use]
    pub fn observe(self, observe: impl FnMut(Event<'_>) -> ControlFlow<()> + 'o) -> Self {
        Self { course: Course::observed(observe), ..self }
    }

    /// Copies `source` to the path `copy` in any destination; an archive is unpacked into the
    /// directory there. The map of owners is taken as it is.
    ///
    /// # Errors
    /// The first thing that could not be copied; the archive cannot be read.
    pub fn copy(
        self,
        source: Source<'_>,
        to: &mut dyn Destination,
        copy: impl AsRef<Path>,
    ) -> Result<Copied, CopyError> {
        let copy = copy.as_ref();
        let shown = to.shown(copy);
        let mut place = Mapped::new(to, &self.owners);
        let original = source.name();
        let (result, course) = match source {
            Source::Host(path) => {
                let mut ingest = Ingest::new(&mut place, self.keep, self.course);
                (ingest.copy(path, copy), ingest.into_course())
            }
            Source::Image(inode, path) => {
                let mut extract = Extract::new(&mut place, copy.to_owned(), self.keep, self.course);
                (extract.copy(inode, path), extract.into_course())
            }
            Source::Archive(archive) => {
                let mut unpack = Unpack::new(&mut place, copy.to_owned(), self.keep, self.course);
                (unpack.unpack(archive), unpack.into_course())
            }
        };
        course.end(result, original, &shown)
    }

    /// Copies a file or directory of this system, with all that is in it, to `copy` in a subvolume.
    /// Symbolic links are copied, not followed; those in the path `original` above its last name
    /// are followed.
    ///
    /// # Errors
    /// The first thing that could not be copied; the file system is not open for writing.
    pub fn copy_in(
        self,
        original: impl AsRef<Path>,
        subvolume: &Subvolume,
        copy: impl AsRef<Path>,
    ) -> Result<Copied, CopyError> {
        self.copy(Source::Host(original.as_ref()), &mut IntoImage::new(subvolume, ""), copy)
    }

    /// Copies a file or directory in a subvolume, with all that is in it, to `copy` on this system.
    /// Symbolic links are copied, not followed.
    ///
    /// # Errors
    /// The first thing that could not be copied.
    pub fn copy_out(
        self,
        subvolume: &Subvolume,
        original: impl AsRef<Path>,
        copy: impl AsRef<Path>,
    ) -> Result<Copied, CopyError> {
        let (original, copy) = (original.as_ref(), copy.as_ref());
        let failed = |error: anyhow::Error| CopyError::of(error, original, copy);
        let inode = subvolume.lookup(original).map_err(|error| failed(error.into()))?;
        let (directory, name) = split(copy);
        let mut host = OntoHost::below(directory).map_err(failed)?;
        let owners = self.owners.turned();
        Self { owners, ..self }.copy(Source::Image(&inode, original), &mut host, name)
    }

    /// Copies a file or directory in a subvolume, with all that is in it, to `copy` in a subvolume,
    /// the same or another one. Within one file system the copies share their data.
    ///
    /// # Errors
    /// The first thing that could not be copied; the file system of `to` is not open for writing.
    pub fn copy_within(
        self,
        from: &Subvolume,
        original: impl AsRef<Path>,
        to: &Subvolume,
        copy: impl AsRef<Path>,
    ) -> Result<Copied, CopyError> {
        let (original, copy) = (original.as_ref(), copy.as_ref());
        let inode = from.lookup(original);
        let inode = inode.map_err(|error| CopyError::of(error.into(), original, copy))?;
        let is_same = from.filesystem().is_same(to.filesystem());
        let Self { keep, owners, course } = self;
        let mut transplant = Transplant::new(to, copy.to_owned(), keep, owners, is_same, course);
        let result = transplant.copy(&inode, original, copy);
        transplant.into_course().end(result, original, copy)
    }

    /// Unpacks a tar archive (ustar, GNU or PAX; not compressed) into a directory of a subvolume.
    /// Names that lead out of the directory are refused, and nothing is unpacked through a symbolic
    /// link.
    ///
    /// # Errors
    /// The first thing that could not be unpacked; the archive cannot be read; the file system is
    /// not open for writing.
    pub fn unpack(
        self,
        mut archive: impl BufRead,
        subvolume: &Subvolume,
        directory: impl AsRef<Path>,
    ) -> Result<Copied, CopyError> {
        let (directory, source) = (directory.as_ref(), Source::Archive(&mut archive));
        if let Err(error) = subvolume.open_directory(directory) {
            return Err(CopyError::of(error.into(), source.name(), directory));
        }
        self.copy(source, &mut IntoImage::new(subvolume, ""), directory)
    }
}

/// What is copied.
pub enum Source<'s> {
    /// A file or directory of this system, with all that is in it. Symbolic links are copied, not
    /// followed; those in the path above its last name are followed.
    Host(&'s Path),
    /// An inode of a subvolume with all that is in it, and its name in messages.
    Image(&'s Inode, &'s Path),
    /// What is in a tar archive (ustar, GNU or PAX; not compressed).
    Archive(&'s mut dyn BufRead),
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.name()).finish()
    }
}

impl<'s> Source<'s> {
    /// Its name in messages.
    fn name(&self) -> &'s Path {
        match self {
            Self::Host(path) | Self::Image(_, path) => path,
            Self::Archive(_) => Path::new("the archive"),
        }
    }
}

/// The directory that contains a path of this system, and the name there; nothing if the path itself
/// is that of a directory.
fn split(path: &Path) -> (&Path, PathBuf) {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => {
            (Path::new("."), name.into())
        }
        (Some(parent), Some(name)) => (parent, name.into()),
        _ => (path, PathBuf::new()),
    }
}
