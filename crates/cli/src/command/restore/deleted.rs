//! Files that were deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use larder::{DeletedFile, DeletedFiles, FileType, Filesystem, Inode, Subvolume};
use larder_copy::{Extract, Keep, OntoHost, below};

use super::Restore;
use super::unreached::{is_inside, names};
use crate::copying;
use crate::interrupt;
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout;
use crate::progress::Progress;

/// Bytes of a file that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A copy of deleted files in progress.
struct Copying<'a> {
    /// None if nothing is copied.
    destination: Option<&'a Path>,
    chosen: &'a dyn Fn(&Path) -> bool,
    image: &'a Path,
    /// The paths of the subvolumes as they are now.
    subvolumes: BTreeMap<u64, PathBuf>,
    used: BTreeSet<PathBuf>,
    failures: usize,
}

impl Restore {
    /// Copies the deleted files of the file system on `image`.
    pub(super) fn restore_deleted(&self, image: &Path, chosen: &dyn Fn(&Path) -> bool) -> Outcome {
        let destination = self.destination.as_deref().filter(|_| !self.dry_run);
        let deleted = self.source.find_deleted(image)?;
        if let Some(destination) = destination {
            self.prepare(destination)?;
        }
        let subvolumes = self.source.open_for_reading_names(image).map(|filesystem| {
            let ids = deleted.files().iter().map(|file| file.subvolume).collect::<BTreeSet<_>>();
            let path = |id: u64| Some((id, filesystem.subvolume_by_id(id).ok()?.path().ok()?));
            ids.into_iter().filter_map(path).collect()
        });
        let subvolumes = subvolumes.unwrap_or_default();
        let (used, failures) = Default::default();
        let mut copying = Copying { destination, chosen, image, subvolumes, used, failures };
        let unread = copying.round(&deleted, deleted.files(), |file| file.until, false)?;
        // Blocks of the last commit before the end may be lost that earlier ones stand for.
        copying.round(&deleted, &unread, |file| file.generation, true)?;
        Ok(exit_code(copying.failures))
    }
}

impl Copying<'_> {
    /// Copies the files that can be read whole from the commits that `at` says. Returns the others,
    /// or with `is_last` copies what can be read of them.
    fn round(
        &mut self,
        deleted: &DeletedFiles,
        files: &[DeletedFile],
        at: fn(&DeletedFile) -> u64,
        is_last: bool,
    ) -> anyhow::Result<Vec<DeletedFile>> {
        let mut by_commit: BTreeMap<u64, Vec<DeletedFile>> = BTreeMap::new();
        for file in files {
            by_commit.entry(at(file)).or_default().push(*file);
        }
        let mut unread = Vec::new();
        for (commit, files) in by_commit.into_iter().rev() {
            let filesystem = deleted.at(commit).unwrap_or_else(|error| {
                if is_last {
                    eprintln!("WARNING: {}: generation {commit}: {error}", self.image.display());
                }
                None
            });
            for file in files {
                interrupt::check()?;
                let found = filesystem.as_ref().and_then(|it| inode(it, &file));
                match found {
                    Some((subvolume, inode)) if is_last || is_whole(&inode) => {
                        self.file(&subvolume, &inode, &file)?;
                    }
                    None if is_last => {
                        self.failures += 1;
                        let image = self.image.display();
                        let DeletedFile { inode, subvolume, .. } = file;
                        eprintln!(
                            "ERROR: {image}: deleted inode {inode} of subvolume {subvolume} cannot \
                             be read any more"
                        );
                    }
                    _ => unread.push(file),
                }
            }
        }
        Ok(unread)
    }

    /// Copies one file, and tells where it was found.
    fn file(
        &mut self,
        subvolume: &Subvolume,
        inode: &Inode,
        file: &DeletedFile,
    ) -> anyhow::Result<()> {
        let path = self.path(subvolume, inode, file);
        if !(self.chosen)(&path) {
            return Ok(());
        }
        let DeletedFile { generation, block, .. } = file;
        let shown = below(self.image, &path);
        writeln!(stdout(), "{}: generation {generation}, block {block}", path.display())?;
        let Some(destination) = self.destination else { return Ok(()) };
        let named = || shown.display().to_string();
        let mut host = OntoHost::below(destination).with_context(named)?;
        host.make_way_to(&path).with_context(named)?;
        let course = copying::shown(Progress::of_bytes());
        let mut extract = Extract::new(&mut host, path, Keep::Everything, course).salvaging();
        let ended = extract.copy(inode, &shown);
        self.failures += copying::ended(ended, &extract.into_course()).with_context(named)?;
        Ok(())
    }

    /// A path for a file that no other has: the one that it had, as far as that is known.
    fn path(&mut self, subvolume: &Subvolume, inode: &Inode, file: &DeletedFile) -> PathBuf {
        let number = file.inode;
        let base = self.subvolumes.get(&file.subvolume).filter(|path| is_inside(path)).cloned();
        let base = base.unwrap_or_else(|| format!("subvolume-{}", file.subvolume).into());
        let links = inode.links().unwrap_or_default();
        let name = names(&mut subvolume.paths(), &links).into_iter().next();
        let mut path = base.join(name.unwrap_or_else(|| format!("inode-{number}").into()));
        if self.used.contains(&path) {
            let mut other = path.into_os_string();
            other.push(format!("~{number}"));
            path = other.into();
        }
        self.used.insert(path.clone());
        path
    }
}

/// The inode of a file in a file system as it was.
fn inode(filesystem: &Filesystem, file: &DeletedFile) -> Option<(Subvolume, Inode)> {
    let subvolume = filesystem.subvolume_by_id(file.subvolume).ok()?;
    let inode = subvolume.inode(file.inode).ok()?;
    Some((subvolume, inode))
}

/// Whether everything of a file can be read.
fn is_whole(inode: &Inode) -> bool {
    let read = || -> anyhow::Result<()> {
        match inode.file_type() {
            FileType::Regular => {}
            FileType::Symlink => return inode.link_target().map(drop).map_err(Into::into),
            _ => return Ok(()),
        }
        let file = inode.clone().into_file()?;
        let mut buffer = vec![0; PIECE_BYTES];
        for range in file.data_ranges()? {
            let mut offset = range.start;
            while offset < range.end {
                let want = (range.end - offset).min(PIECE_BYTES as u64) as usize;
                match file.read_at(&mut buffer[..want], offset)? {
                    0 => bail!("it ends at {offset}"),
                    len => offset += len as u64,
                }
            }
        }
        Ok(())
    };
    read().is_ok()
}
