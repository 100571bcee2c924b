//! The walk.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use larder_format::item::{FileType, InodeFlags, NAME_MAX};
use larder_format::objectid;
use larder_platform::HostTree;
use rustix::fs::{Stat, stat};
use rustix::io::Errno;

use super::access::data_ranges;
use super::{Kind, ParentEntry, Source, SourceEntry, Subvolume};
use crate::{InodeFlagsSpec, MkfsError, MkfsOptions, Progress, SubvolumeSpec};

/// Most names of an inode (`BTRFS_LINK_MAX`).
const MAX_LINKS: usize = 65535;

/// Walks `root` and all below it, across mount points. None of the `targets` may be there, or they
/// would be copied into themselves.
pub(crate) fn scan(
    root: &Path,
    options: &MkfsOptions,
    targets: &[PathBuf],
) -> Result<Source, MkfsError> {
    let targets: Vec<FileId> =
        targets.iter().filter_map(|target| FileId::of_path(target)).collect();
    let mut wanted = wanted_paths(&options.subvolumes)?;
    let mut default = 0;
    let place = |inside| (root.to_owned(), inside);
    let mut top = Subvolume::new(objectid::FS_TREE, place(PathBuf::new()), false, None);
    let mut flags = FlagsByPath::new(&options.inode_flags)?;
    top.nodes[0].flags = flags.of(Path::new("")).unwrap_or(InodeFlags::empty());
    let mut tree = HostTree::below(root).map_err(MkfsError::source(|| root.to_owned()))?;
    let mut subvolumes = vec![top];
    let mut next = 0;
    while next < subvolumes.len() {
        let scanned = &mut subvolumes[next];
        let mut found = Vec::new();
        let is_subvolume = |path: &Path| wanted.remove(path);
        Walk {
            tree: &mut tree,
            subvolume: scanned,
            targets: &targets,
            links: HashMap::new(),
            flags: &mut flags,
            found: &mut found,
            progress: options.progress.as_ref(),
        }
        .run(is_subvolume)?;
        number(scanned)?;
        for (at, spec) in found {
            let index = subvolumes.len();
            let entry = parent_entry(&subvolumes[next], at);
            let path = subvolumes[next].path_inside(at);
            subvolumes[next].nodes[at as usize].kind = Kind::Subvolume(index as u32);
            if spec.default {
                default = index;
            }
            let id = objectid::FIRST_FREE + index as u64 - 1;
            let flags = subvolumes[next].node(at).flags;
            let mut subvolume = Subvolume::new(id, place(path), spec.read_only, Some(entry));
            subvolume.nodes[0].flags = flags;
            subvolumes.push(subvolume);
        }
        next += 1;
    }
    if let Some(path) = flags.left.into_keys().min() {
        let problem = "no such file or directory in the root directory, so no flags".into();
        return Err(MkfsError::Unsupported { path, problem });
    }
    match wanted.into_keys().min() {
        Some(path) => {
            let problem = "no such directory in the root directory, so no subvolume".into();
            Err(MkfsError::Unsupported { path, problem })
        }
        None => Ok(Source { subvolumes, default }),
    }
}

/// The paths of subvolumes in the root directory.
fn wanted_paths(specs: &[SubvolumeSpec]) -> Result<HashMap<PathBuf, &SubvolumeSpec>, MkfsError> {
    let mut wanted = HashMap::new();
    for spec in specs {
        let path = path_inside(&spec.path)
            .ok_or("a subvolume's path is relative and without '..'")
            .map_err(|problem| MkfsError::Unsupported {
                path: spec.path.clone(),
                problem: problem.into(),
            })?;
        if path.as_os_str().is_empty() {
            let problem = "the root directory is a subvolume anyway".into();
            return Err(MkfsError::Unsupported { path: spec.path.clone(), problem });
        }
        if wanted.insert(path, spec).is_some() {
            let problem = "given as a subvolume twice".into();
            return Err(MkfsError::Unsupported { path: spec.path.clone(), problem });
        }
    }
    if specs.iter().filter(|spec| spec.default).count() > 1 {
        return Err(MkfsError::invalid("there is only one default subvolume"));
    }
    Ok(wanted)
}

/// A path that leads down from the root directory, without `.`; `None` if it leads elsewhere.
fn path_inside(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(inside)
}

/// Flags by the path in the root directory, until that is met.
struct FlagsByPath {
    left: HashMap<PathBuf, InodeFlags>,
}

impl FlagsByPath {
    fn new(specs: &[InodeFlagsSpec]) -> Result<Self, MkfsError> {
        let mut left = HashMap::new();
        for InodeFlagsSpec { path, flags } in specs {
            let refuse = |problem: &str| {
                let problem = problem.into();
                MkfsError::Unsupported { path: path.clone(), problem }
            };
            let inside = path_inside(path)
                .ok_or_else(|| refuse("a path with flags is relative and without '..'"))?;
            if left.insert(inside, *flags).is_some() {
                return Err(refuse("given flags twice"));
            }
        }
        Ok(Self { left })
    }

    /// The flags that were given for this path of the source.
    fn of(&mut self, path: &Path) -> Option<InodeFlags> {
        self.left.remove(path)
    }
}

fn parent_entry(subvolume: &Subvolume, at: u32) -> ParentEntry {
    let node = subvolume.node(at);
    ParentEntry {
        tree: subvolume.id,
        directory: subvolume.node(node.parent).inode,
        index: subvolume.directory_index(at),
        name: subvolume.name(node).to_vec(),
    }
}

/// Assigns inode numbers in the order of the nodes.
fn number(subvolume: &mut Subvolume) -> Result<(), MkfsError> {
    let mut next = objectid::FIRST_FREE;
    for at in 0..subvolume.nodes.len() as u32 {
        let first = subvolume.names_of(&at)[0];
        let node = subvolume.nodes[at as usize];
        let inode = if first != at {
            subvolume.node(first).inode
        } else if matches!(node.kind, Kind::Subvolume(_)) {
            continue;
        } else {
            next += 1;
            next - 1
        };
        subvolume.nodes[at as usize].inode = inode;
    }
    match subvolume.links.iter().find(|names| names.len() > MAX_LINKS) {
        Some(names) => {
            let problem = format!("{} hard links, at most {MAX_LINKS} are possible", names.len());
            Err(MkfsError::Unsupported { path: subvolume.path(names[0]), problem })
        }
        None => Ok(()),
    }
}

/// The identity of a file, which all its names share: device and inode number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FileId(u64, u64);

impl FileId {
    fn of(status: &Stat) -> Self {
        Self(status.st_dev, status.st_ino)
    }

    /// `None` if there is no such file.
    fn of_path(path: &Path) -> Option<Self> {
        stat(path).ok().as_ref().map(Self::of)
    }
}

/// The walk of one subvolume.
struct Walk<'a, 's> {
    tree: &'a mut HostTree,
    subvolume: &'a mut Subvolume,
    targets: &'a [FileId],
    /// From files with several names to their first node.
    links: HashMap<FileId, u32>,
    flags: &'a mut FlagsByPath,
    /// Entries that are subvolumes of their own.
    found: &'a mut Vec<(u32, &'s SubvolumeSpec)>,
    progress: Option<&'a Progress>,
}

impl<'s> Walk<'_, 's> {
    fn run(
        &mut self,
        mut is_subvolume: impl FnMut(&Path) -> Option<&'s SubvolumeSpec>,
    ) -> Result<(), MkfsError> {
        let mut at = 0;
        while at < self.subvolume.nodes.len() as u32 {
            if self.subvolume.node(at).kind == Kind::Directory {
                let path = self.subvolume.path_inside(at);
                let spec = if at == 0 { None } else { is_subvolume(&path) };
                match spec {
                    Some(spec) => {
                        self.subvolume.nodes[at as usize].kind = Kind::Subvolume(u32::MAX);
                        self.found.push((at, spec));
                    }
                    None => self.add_children(at, &path)?,
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Adds the entries of the directory at node `at`, which is at `path` in the source.
    fn add_children(&mut self, at: u32, path: &Path) -> Result<(), MkfsError> {
        self.progress.map_or(Ok(()), |progress| progress.tell(0))?;
        let names = self.tree.names(path);
        let mut names = names.map_err(MkfsError::source(|| self.subvolume.path(at)))?;
        names.sort_unstable();
        let first_child = self.subvolume.nodes.len();
        let shown = self.subvolume.path(at);
        for name in names {
            let (child_path, child_shown) = (path.join(&name), || shown.join(&name));
            let failed = || MkfsError::source(child_shown);
            let status = self.tree.status(&child_path).map_err(failed())?;
            if self.targets.contains(&FileId::of(&status)) {
                let problem = "the file system would be copied into itself".into();
                return Err(MkfsError::Unsupported { path: child_shown(), problem });
            }
            let child = self.child(at, name.as_bytes(), &status);
            let mut child = child.map_err(failed())?;
            // A directory passes its flags on.
            if matches!(child.kind, Kind::File | Kind::Directory) {
                let own =
                    if self.flags.left.is_empty() { None } else { self.flags.of(&child_path) };
                child.flags = own.unwrap_or(self.subvolume.node(at).flags);
            }
            child.data_bytes = data_bytes(self.tree, &child_path, &status).map_err(failed())?;
            self.subvolume.nodes.push(child);
        }
        let children = self.subvolume.nodes.len() - first_child;
        if u32::try_from(self.subvolume.nodes.len()).is_err() {
            let problem = "more than 4294967295 entries in one subvolume".into();
            return Err(MkfsError::Unsupported { path: shown, problem });
        }
        let node = &mut self.subvolume.nodes[at as usize];
        (node.first_child, node.children) = (first_child as u32, children as u32);
        Ok(())
    }

    /// The next node. Records its name and its links.
    fn child(&mut self, parent: u32, name: &[u8], status: &Stat) -> io::Result<SourceEntry> {
        let kind = match FileType::from_mode(status.st_mode) {
            Some(FileType::Regular) => Kind::File,
            Some(FileType::Directory) => Kind::Directory,
            Some(FileType::Symlink) => Kind::Symlink,
            Some(file_type) => Kind::Special(file_type),
            None => return Err(io::Error::other("unknown file type")),
        };
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let several_names = kind != Kind::Directory && status.st_nlink > 1;
        let link = several_names.then(|| self.link(status)).flatten();
        let name_start = self.subvolume.names.len();
        self.subvolume.names.extend_from_slice(name);
        Ok(SourceEntry {
            kind,
            inode: 0,
            size: if kind == Kind::File { status.st_size as u64 } else { 0 },
            data_bytes: 0,
            parent,
            first_child: 0,
            children: 0,
            link,
            flags: InodeFlags::empty(),
            name_start,
            name_len: name.len() as u8,
        })
    }

    /// Records the next node as a name of its inode. `None` if it is the first.
    fn link(&mut self, status: &Stat) -> Option<u32> {
        let at = self.subvolume.nodes.len() as u32;
        let first = *self.links.entry(FileId::of(status)).or_insert(at);
        if first == at {
            return None;
        }
        let links = &mut self.subvolume.links;
        let link = *self.subvolume.nodes[first as usize].link.get_or_insert_with(|| {
            links.push(vec![first]);
            links.len() as u32 - 1
        });
        links[link as usize].push(at);
        Some(link)
    }
}

/// Bytes of the file at `path` that are not in holes.
fn data_bytes(tree: &mut HostTree, path: &Path, status: &Stat) -> io::Result<u64> {
    let size = status.st_size as u64;
    if FileType::from_mode(status.st_mode) != Some(FileType::Regular) {
        return Ok(0);
    }
    // With fewer blocks than bytes there are holes, or compression.
    if status.st_blocks as u64 * 512 >= size {
        return Ok(size);
    }
    let (file, _) = tree.file(path)?;
    let ranges = data_ranges(file.as_fd(), size, 1)?;
    Ok(ranges.iter().map(|range| range.end - range.start).sum())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("b/deep")).unwrap();
        fs::create_dir(path("sub")).unwrap();
        for name in ["z", "a", "b/one", "b/deep/two", "sub/three"] {
            fs::write(path(name), name).unwrap();
        }
        fs::hard_link(path("z"), path("b/link")).unwrap();
        fs::hard_link(path("z"), path("sub/far")).unwrap();
        folder
    }

    fn with_subvolume(spec: &str) -> MkfsOptions {
        MkfsOptions { subvolumes: vec![spec.parse().unwrap()], ..MkfsOptions::default() }
    }

    fn names(subvolume: &Subvolume) -> Vec<(String, u64)> {
        let name = |node| String::from_utf8(subvolume.name(node).to_vec()).unwrap();
        subvolume.nodes().iter().map(|node| (name(node), node.inode)).collect()
    }

    #[test]
    fn numbers_follow_the_order_of_names_level_by_level() {
        let folder = tree();
        let source = scan(folder.path(), &with_subvolume("sub"), &[]).unwrap();
        let expected = [
            ("", 256),
            ("a", 257),
            ("b", 258),
            ("sub", 0),
            ("z", 259),
            ("deep", 260),
            ("link", 259),
            ("one", 261),
            ("two", 262),
        ];
        let expected: Vec<_> = expected.map(|(name, inode)| (name.to_owned(), inode)).into();
        let top = &source.subvolumes[0];
        assert_eq!(names(top), expected);
        assert_eq!(top.names_of(&4), [4, 6]);
        assert!(top.is_first_name(4) && !top.is_first_name(6));
        assert_eq!(top.directory_index(4), 5);
        assert_eq!(top.path(8), folder.path().join("b/deep/two"));

        let sub = &source.subvolumes[1];
        assert_eq!((sub.id, source.subvolumes.len()), (256, 2));
        assert_eq!(names(sub)[1..], [("far".into(), 257), ("three".into(), 258)]);
        assert_eq!(sub.names_of(&1), [1], "names in another subvolume are other inodes");
        assert_eq!(sub.parent.as_ref().unwrap().index, 4);
    }

    #[test]
    fn subvolumes_must_be_directories_inside() {
        let folder = tree();
        let refused =
            |spec: &str| scan(folder.path(), &with_subvolume(spec), &[]).unwrap_err().to_string();
        assert!(refused("nowhere").starts_with("nowhere: no such directory"));
        assert!(refused("z").starts_with("z: no such directory"));
        assert!(refused("b/../sub").contains("without '..'"));
        assert!(refused(".").contains("anyway"));
    }

    #[test]
    fn missing_directories_are_named() {
        let error = scan(Path::new("/nowhere/at/all"), &MkfsOptions::default(), &[]).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/at/all: "), "{error}");
    }
}
