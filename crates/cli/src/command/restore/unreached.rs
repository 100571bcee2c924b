//! Inodes that no directory names any more.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use larder::{Directory, FileType, Filesystem, Inode, Link, Paths, Subvolume, SubvolumeName};
use larder_copy::{Extract, Keep, OntoHost, below, check_name};

use crate::copying;
use crate::interrupt;
use crate::progress::Progress;

/// The directory for what has no name.
const LOST_AND_FOUND: &str = "lost+found";

/// Copies subvolumes and inodes whose names are lost with the directories that had them: to where they
/// say that they were, otherwise to `lost+found`, below the numbers of the subvolume and of the
/// directory. Names that a sound directory does not have were removed. Returns how many failures were
/// reported.
pub fn copy(filesystem: &Filesystem, shown: &Path, destination: &Path) -> anyhow::Result<usize> {
    let infos = filesystem.subvolumes().filter_map(Result::ok);
    let others = infos.filter(|info| !info.is_top_level());
    let others = others.filter_map(|info| {
        let subvolume = filesystem.subvolume_by_id(info.id).ok()?;
        Some((subvolume, info.name.filter(|_| !info.is_being_deleted)))
    });
    let top_level = filesystem.subvolume("/").into_iter().map(|it| (it, None));
    let mut failures = 0;
    for (subvolume, name) in top_level.chain(others) {
        if name.is_some_and(|name| is_lost(filesystem, &subvolume, &name)) {
            let target = place_of(&subvolume);
            let named = below(shown, &target);
            eprintln!("WARNING: {}: no directory names the subvolume any more", named.display());
            match subvolume.lookup("/") {
                Ok(root) => failures += copy_one(&root, &target, &named, destination)?,
                Err(error) => {
                    eprintln!("ERROR: {}: {error}", named.display());
                    failures += 1;
                }
            }
        }
        failures += copy_from(&subvolume, shown, destination)?;
    }
    Ok(failures)
}

/// Whether a subvolume had a name in a directory that is lost, and no walk comes to it.
fn is_lost(filesystem: &Filesystem, subvolume: &Subvolume, name: &SubvolumeName) -> bool {
    let above = filesystem.subvolume_by_id(name.parent);
    if above.is_ok_and(|above| !above.doubts(name.directory)) {
        return false;
    }
    let at = subvolume.path().and_then(|path| filesystem.subvolume(path));
    !at.is_ok_and(|at| at.id() == subvolume.id())
}

/// Where a subvolume goes: to its path, if that can be known.
fn place_of(subvolume: &Subvolume) -> PathBuf {
    let path = subvolume.path().ok().filter(|path| is_inside(path));
    path.unwrap_or_else(|| Path::new(LOST_AND_FOUND).join(subvolume.id().to_string()))
}

/// Copies an inode, and what is below, to `target`. Users call it `shown`.
fn copy_one(
    inode: &Inode,
    target: &Path,
    shown: &Path,
    destination: &Path,
) -> anyhow::Result<usize> {
    let named = || shown.display().to_string();
    let mut host = OntoHost::below(destination).with_context(named)?;
    host.make_way_to(target).with_context(named)?;
    let course = copying::shown(Progress::of_bytes());
    let extract = Extract::new(&mut host, target.to_owned(), Keep::Everything, course);
    let mut extract = extract.salvaging();
    let ended = extract.copy(inode, shown);
    copying::ended(ended, &extract.into_course()).with_context(named)
}

fn copy_from(subvolume: &Subvolume, shown: &Path, destination: &Path) -> anyhow::Result<usize> {
    let lost = || Path::new(LOST_AND_FOUND).join(subvolume.id().to_string());
    let base = place_of(subvolume);
    let mut paths = subvolume.paths();
    let (mut failures, mut folders) = (0, None);
    // The walk has named what cannot be read.
    for found in subvolume.scan().filter_map(Result::ok) {
        interrupt::check()?;
        let number = found.metadata.inode;
        let is_doubtful = match &found.links[..] {
            [] => subvolume.doubts(number),
            links => links.iter().any(|link| subvolume.doubts(link.parent)),
        };
        let is_file = found.metadata.file_type != FileType::Directory && found.metadata.nlink > 0;
        if !is_doubtful || !is_file {
            continue;
        }
        let folders = folders.get_or_insert_with(|| reached_folders(subvolume));
        let in_folder = |link: &Link| {
            let folder = folders.get(&link.parent)?;
            check_name(&link.name).is_ok().then(|| folder.join(&link.name))
        };
        let mut names: Vec<PathBuf> = found.links.iter().filter_map(in_folder).collect();
        if names.is_empty() {
            names = self::names(&mut paths, &found.links);
        }
        let leads_here =
            |name: &PathBuf| subvolume.lookup(name).is_ok_and(|inode| inode.number() == number);
        if names.iter().any(leads_here) {
            continue;
        }
        let target = match names.first() {
            Some(name) => base.join(name),
            None => {
                lost().join(last_name(&found.links).unwrap_or_else(|| number.to_string().into()))
            }
        };
        let named = || below(shown, &target).display().to_string();
        eprintln!("WARNING: {}: no directory names it any more", named());
        let inode = subvolume.inode(number).with_context(named)?;
        failures += copy_one(&inode, &target, &below(shown, &target), destination)?;
    }
    Ok(failures)
}

/// A name that an inode says it has, below the number of its directory.
fn last_name(links: &[Link]) -> Option<PathBuf> {
    let link = links.iter().find(|link| check_name(&link.name).is_ok())?;
    Some(Path::new(&link.parent.to_string()).join(&link.name))
}

/// The paths of the directories of a subvolume that names lead to, by number.
fn reached_folders(subvolume: &Subvolume) -> HashMap<u64, PathBuf> {
    let mut folders = HashMap::new();
    let mut next: Vec<(Directory, PathBuf)> = Vec::new();
    next.extend(subvolume.root().ok().map(|root| (root, PathBuf::new())));
    while let Some((folder, path)) = next.pop() {
        if folders.contains_key(&folder.number()) {
            continue;
        }
        folders.insert(folder.number(), path.clone());
        for entry in folder.entries().into_iter().flatten().filter_map(Result::ok) {
            if entry.file_type() != FileType::Directory || check_name(entry.name()).is_err() {
                continue;
            }
            let inner = entry.open().and_then(Inode::into_directory);
            let inner = inner.ok().filter(|inner| inner.subvolume().id() == subvolume.id());
            next.extend(inner.map(|inner| (inner, path.join(entry.name()))));
        }
    }
    folders
}

/// The paths that an inode says it has, as far as the directories say theirs.
pub fn names(paths: &mut Paths, links: &[Link]) -> Vec<PathBuf> {
    let names = links.iter().filter_map(|link| paths.of(link).ok());
    names.filter(|path| is_inside(path)).collect()
}

/// Whether a path that an image says leads out of no directory.
pub fn is_inside(path: &Path) -> bool {
    path.components().all(|it| matches!(it, Component::Normal(_)))
}
