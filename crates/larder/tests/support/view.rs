//! The content of a folder, as the library and as the kernel see it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use larder::{FileType, Subvolume};

/// By path from the folder.
pub(crate) type View = BTreeMap<String, Seen>;

/// One name.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) is_file: bool,
    pub(crate) permissions: u32,
    pub(crate) nlink: u32,
    /// Data, target, or sorted names.
    pub(crate) content: Vec<u8>,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
    /// In seconds, if it is known.
    pub(crate) mtime: Option<i64>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen")
            .field("permissions", &self.permissions)
            .field("nlink", &self.nlink)
            .field("len", &self.content.len())
            .field("xattrs", &self.xattrs.keys())
            .field("mtime", &self.mtime)
            .finish_non_exhaustive()
    }
}

/// Compares the content with the expected one.
#[track_caller]
pub(crate) fn assert_same(seen: &View, expected: &View, by: &str) {
    let names = |view: &View| view.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(seen), names(expected), "by {by}");
    for (path, expected) in expected {
        let mut seen = seen[path].clone();
        if expected.mtime.is_none() {
            seen.mtime = None;
        }
        let differs = seen.content.iter().zip(&expected.content).position(|(a, b)| a != b);
        assert!(seen == *expected, "by {by}: {path}: {seen:?} {expected:?} at {differs:?}");
    }
}

pub(crate) fn by_larder(root: &Subvolume, folder: &str) -> larder::Result<View> {
    let mut view = View::new();
    let mut pending = vec![String::new()];
    while let Some(path) = pending.pop() {
        let full = format!("{folder}/{path}");
        let inode = root.lookup(full.trim_end_matches('/'))?;
        let metadata = inode.metadata();
        let content = match inode.file_type() {
            FileType::Regular => {
                let file = inode.clone().into_file()?;
                let mut data = vec![0; file.len_bytes() as usize];
                assert_eq!(file.read_at(&mut data, 0)?, data.len());
                data
            }
            FileType::Directory => {
                let mut names = Vec::new();
                for entry in inode.clone().into_directory()?.entries()? {
                    names.push(entry?.name().to_str().expect("a plain name").to_owned());
                }
                names.sort_unstable();
                let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
                pending.extend(names.iter().map(|name| format!("{prefix}{name}")));
                names.join(" ").into_bytes()
            }
            FileType::Symlink => {
                inode.link_target()?.to_str().expect("a plain target").to_owned().into_bytes()
            }
            _ => Vec::new(),
        };
        let mut xattrs = BTreeMap::new();
        for xattr in inode.xattrs() {
            let xattr = xattr?;
            xattrs.insert(xattr.name.into_string().expect("a plain name"), xattr.value);
        }
        if !path.is_empty() {
            let (permissions, nlink) = (metadata.mode & 0o7777, metadata.nlink);
            let mtime = Some(metadata.mtime.seconds);
            let is_file = inode.file_type() == FileType::Regular;
            view.insert(path, Seen { is_file, permissions, nlink, content, xattrs, mtime });
        }
    }
    Ok(view)
}

pub(crate) fn by_kernel(folder: &Path) -> View {
    let mut view = View::new();
    let mut pending = vec![String::new()];
    while let Some(path) = pending.pop() {
        let full = folder.join(&path);
        let metadata = std::fs::symlink_metadata(&full).unwrap();
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            let mut names: Vec<String> = std::fs::read_dir(&full)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort_unstable();
            let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
            pending.extend(names.iter().map(|name| format!("{prefix}{name}")));
            names.join(" ").into_bytes()
        } else if kind.is_symlink() {
            std::fs::read_link(&full).unwrap().into_os_string().into_string().unwrap().into_bytes()
        } else if kind.is_fifo() {
            Vec::new()
        } else {
            std::fs::read(&full).unwrap()
        };
        if !path.is_empty() {
            let (permissions, nlink) = (metadata.mode() & 0o7777, metadata.nlink() as u32);
            let (xattrs, mtime) = (xattrs(&full), Some(metadata.mtime()));
            let is_file = kind.is_file();
            view.insert(path, Seen { is_file, permissions, nlink, content, xattrs, mtime });
        }
    }
    view
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut list = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut list[..]).unwrap();
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let name = str::from_utf8(name).unwrap().to_owned();
            let mut value = vec![0; 4096];
            let len = rustix::fs::lgetxattr(path, &*name, &mut value[..]).unwrap();
            (name, value[..len].to_vec())
        })
        .collect()
}
