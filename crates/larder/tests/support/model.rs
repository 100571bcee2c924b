//! A simple model of a file system, and random operations that are done to it and to a real one.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use larder::{ErrorKind, InodeFlags, RenameMode, SetAttributes, Subvolume, Timestamp, XattrMode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::view::{Seen, View};

const NAMES: usize = 12;
pub(super) const MOST_BYTES: u64 = 300_000;

/// A tree of inodes in memory. The root directory is number 0.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    nodes: BTreeMap<u64, Node>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Node {
    body: Body,
    nlink: u32,
    permissions: u32,
    mtime: Option<i64>,
    xattrs: BTreeMap<String, Vec<u8>>,
    /// It is overwritten in place, and has no checksums.
    is_in_place: bool,
}

#[derive(Clone, Debug)]
enum Body {
    /// Shared by copies of the model until it changes.
    File(Arc<Vec<u8>>),
    Directory(BTreeMap<String, u64>),
    Symlink(String),
    Fifo,
}

impl Node {
    fn new(body: Body, permissions: u32) -> Self {
        let (mtime, xattrs) = (None, BTreeMap::new());
        Self { body, nlink: 1, permissions, mtime, xattrs, is_in_place: false }
    }

    fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }
}

pub(super) type Outcome = Result<(), ErrorKind>;

impl Model {
    pub(crate) fn new() -> Self {
        let root = Node::new(Body::Directory(BTreeMap::new()), 0o755);
        Self { nodes: BTreeMap::from([(0, root)]), next: 1 }
    }

    /// Everything below the root.
    pub(crate) fn view(&self) -> View {
        let mut view = View::new();
        let mut pending: Vec<(String, u64)> = vec![(String::new(), 0)];
        while let Some((path, id)) = pending.pop() {
            let node = &self.nodes[&id];
            let content = match &node.body {
                Body::File(data) => data.to_vec(),
                Body::Symlink(target) => target.clone().into_bytes(),
                Body::Fifo => Vec::new(),
                Body::Directory(entries) => {
                    let child = |(name, id): (&String, &u64)| (join(&path, name), *id);
                    pending.extend(entries.iter().map(child));
                    entries.keys().cloned().collect::<Vec<_>>().join(" ").into_bytes()
                }
            };
            if id != 0 {
                let (permissions, nlink) = (node.permissions, node.nlink);
                let (xattrs, mtime) = (node.xattrs.clone(), node.mtime);
                let is_file = matches!(node.body, Body::File(_));
                view.insert(path, Seen { is_file, permissions, nlink, content, xattrs, mtime });
            }
        }
        view
    }

    /// The number of the inode at a path from the root.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        path.split('/').try_fold(0, |directory, name| self.find(directory, name))
    }

    /// The data of a file, unless it is gone.
    pub(super) fn data(&self, number: u64) -> Option<&Arc<Vec<u8>>> {
        match &self.nodes.get(&number)?.body {
            Body::File(data) => Some(data),
            _ => None,
        }
    }

    fn entries(&mut self, directory: u64) -> &mut BTreeMap<String, u64> {
        let node = self.nodes.get_mut(&directory).expect("it is there");
        // A change of its names changes its time.
        node.mtime = None;
        match &mut node.body {
            Body::Directory(entries) => entries,
            _ => panic!("it is a directory"),
        }
    }

    pub(super) fn find(&self, directory: u64, name: &str) -> Option<u64> {
        match &self.nodes[&directory].body {
            Body::Directory(entries) => entries.get(name).copied(),
            _ => None,
        }
    }

    fn directories(&self) -> Vec<(String, u64)> {
        let mut found = vec![(String::new(), 0)];
        let mut at = 0;
        while let Some((path, id)) = found.get(at).cloned() {
            if let Body::Directory(entries) = &self.nodes[&id].body {
                for (name, id) in entries {
                    if self.nodes[id].is_directory() {
                        found.push((join(&path, name), *id));
                    }
                }
            }
            at += 1;
        }
        found
    }

    fn make(&mut self, directory: u64, name: &str, node: Node) -> Outcome {
        if self.find(directory, name).is_some() {
            return Err(ErrorKind::AlreadyExists);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        self.entries(directory).insert(name.to_owned(), id);
        Ok(())
    }

    fn link(&mut self, id: Option<u64>, directory: u64, name: &str) -> Outcome {
        let id = id.ok_or(ErrorKind::NotFound)?;
        if self.nodes[&id].is_directory() {
            return Err(ErrorKind::NotPermitted);
        }
        if self.find(directory, name).is_some() {
            return Err(ErrorKind::AlreadyExists);
        }
        self.entries(directory).insert(name.to_owned(), id);
        self.nodes.get_mut(&id).expect("it is there").nlink += 1;
        Ok(())
    }

    fn unlink(&mut self, directory: u64, name: &str) -> Outcome {
        let id = self.find(directory, name).ok_or(ErrorKind::NotFound)?;
        if self.nodes[&id].is_directory() {
            return Err(ErrorKind::IsADirectory);
        }
        self.drop_name(directory, name);
        Ok(())
    }

    fn rmdir(&mut self, directory: u64, name: &str) -> Outcome {
        let id = self.find(directory, name).ok_or(ErrorKind::NotFound)?;
        match &self.nodes[&id].body {
            Body::Directory(entries) if entries.is_empty() => {}
            Body::Directory(_) => return Err(ErrorKind::DirectoryNotEmpty),
            _ => return Err(ErrorKind::NotADirectory),
        }
        self.drop_name(directory, name);
        Ok(())
    }

    fn drop_name(&mut self, directory: u64, name: &str) {
        let id = self.entries(directory).remove(name).expect("it is there");
        let node = self.nodes.get_mut(&id).expect("it is there");
        node.nlink -= 1;
        if node.nlink == 0 {
            self.nodes.remove(&id);
        }
    }

    fn is_within(&self, id: u64, ancestor: u64) -> bool {
        id == ancestor
            || match &self.nodes[&ancestor].body {
                Body::Directory(entries) => {
                    entries.values().any(|child| self.is_within(id, *child))
                }
                _ => false,
            }
    }

    fn rename(&mut self, from: (u64, &str), to: (u64, &str), mode: RenameMode) -> Option<()> {
        let moved = self.find(from.0, from.1)?;
        let there = self.find(to.0, to.1);
        if self.nodes[&moved].is_directory() && self.is_within(to.0, moved) {
            return None;
        }
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) | (RenameMode::Exchange, None) => return None,
            (_, Some(there)) if there == moved => return Some(()),
            (RenameMode::Exchange, Some(there)) => {
                if self.nodes[&there].is_directory() && self.is_within(from.0, there) {
                    return None;
                }
                self.entries(from.0).insert(from.1.to_owned(), there);
                self.entries(to.0).insert(to.1.to_owned(), moved);
                return Some(());
            }
            (RenameMode::Replace, Some(there)) => {
                let (moved, there) = (&self.nodes[&moved], &self.nodes[&there]);
                if moved.is_directory() != there.is_directory() {
                    return None;
                }
                if matches!(&there.body, Body::Directory(entries) if !entries.is_empty()) {
                    return None;
                }
                self.drop_name(to.0, to.1);
            }
            _ => {}
        }
        self.entries(from.0).remove(from.1);
        self.entries(to.0).insert(to.1.to_owned(), moved);
        Some(())
    }

    /// All regular files, each by one of its paths, and their data.
    pub(super) fn files(&mut self) -> Vec<(String, &mut Vec<u8>)> {
        let mut paths = BTreeMap::new();
        for (path, directory) in self.directories() {
            if let Body::Directory(entries) = &self.nodes[&directory].body {
                for (name, id) in entries {
                    paths.entry(*id).or_insert_with(|| join(&path, name));
                }
            }
        }
        let mut files = Vec::new();
        for (id, node) in &mut self.nodes {
            if let (Body::File(data), Some(path)) = (&mut node.body, paths.remove(id)) {
                node.mtime = None;
                files.push((path, Arc::make_mut(data)));
            }
        }
        files
    }

    /// The data of a file, to read, and whether it is overwritten in place.
    pub(super) fn peek(&self, id: Option<u64>) -> Result<(&Vec<u8>, bool), ErrorKind> {
        let node = &self.nodes[&id.ok_or(ErrorKind::NotFound)?];
        match &node.body {
            Body::File(data) => Ok((data, node.is_in_place)),
            Body::Directory(_) => Err(ErrorKind::IsADirectory),
            _ => Err(ErrorKind::InvalidInput),
        }
    }

    pub(super) fn file(&mut self, id: Option<u64>) -> Result<&mut Vec<u8>, ErrorKind> {
        let node = self.nodes.get_mut(&id.ok_or(ErrorKind::NotFound)?).expect("it is there");
        match &mut node.body {
            Body::File(data) => {
                node.mtime = None;
                Ok(Arc::make_mut(data))
            }
            Body::Directory(_) => Err(ErrorKind::IsADirectory),
            _ => Err(ErrorKind::InvalidInput),
        }
    }
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Does random operations in a directory and in its model, and compares the results.
pub(crate) struct Player {
    pub(crate) model: Model,
    pub(super) random: StdRng,
    folder: String,
}

impl Player {
    pub(crate) fn new(folder: &str, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self { model: Model::new(), random, folder: folder.to_owned() }
    }

    pub(crate) fn play(&mut self, root: &Subvolume, count: usize) {
        for number in 0..count {
            self.step(root, number);
        }
    }

    pub(super) fn place(&mut self) -> (u64, String, String) {
        let directories = self.model.directories();
        let (path, id) = &directories[self.random.random_range(0..directories.len())];
        let name = format!("name-{}", self.random.random_range(0..NAMES));
        (*id, format!("{}/{}", self.folder, join(path, &name)), name)
    }

    fn data(&mut self) -> Vec<u8> {
        let most = [10, 300, 5000, 70_000][self.random.random_range(0..4_usize)];
        let byte = self.random.random::<u8>();
        let len = self.random.random_range(1..most);
        (0..len).map(|at: usize| byte.wrapping_add((at / 7) as u8)).collect()
    }

    fn step(&mut self, root: &Subvolume, number: usize) {
        let (directory, path, name) = self.place();
        let id = self.model.find(directory, &name);
        let permissions = self.random.random_range(0..0o1000) | 0o600;
        let (expected, seen): (Outcome, larder::Result<()>) = match self.random.random_range(0..100)
        {
            0..18 => {
                let mut node = Node::new(Body::File(Arc::default()), permissions);
                node.is_in_place = self.random.random_range(0..6) == 0;
                let flags = node.is_in_place.then_some(InodeFlags::NODATACOW);
                let made = root.create(&path, permissions).and_then(|file| {
                    file.set_attributes(&SetAttributes { flags, ..SetAttributes::default() })
                });
                (self.model.make(directory, &name, node), made)
            }
            18..26 => {
                let node = Node::new(Body::Directory(BTreeMap::new()), permissions | 0o700);
                let made = root.create_directory(&path, permissions | 0o700);
                (self.model.make(directory, &name, node), made.map(drop))
            }
            26..29 => {
                let target = format!("target-{number}");
                let node = Node::new(Body::Symlink(target.clone()), 0o777);
                (self.model.make(directory, &name, node), root.symlink(target, &path).map(drop))
            }
            29..31 => {
                let node = Node::new(Body::Fifo, permissions);
                let made = root.create_node(&path, 0o010_000 | permissions, (0, 0));
                (self.model.make(directory, &name, node), made.map(drop))
            }
            31..37 => {
                let (to, to_path, to_name) = self.place();
                (self.model.link(id, to, &to_name), root.hard_link(&path, to_path))
            }
            37..43 => (self.model.unlink(directory, &name), root.remove_file(&path)),
            43..46 => (self.model.rmdir(directory, &name), root.remove_directory(&path)),
            46..56 => return self.rename(root, directory, &path, &name),
            56..80 => self.write(root, id, &path),
            80..85 => self.data_step(root, id, &path),
            85..90 => {
                let len = self.random.random_range(0..MOST_BYTES / 4);
                let cut = self.model.file(id).map(|data| data.resize(len as usize, 0));
                (
                    cut,
                    root.lookup(&path)
                        .and_then(larder::Inode::into_file)
                        .and_then(|f| f.set_len(len)),
                )
            }
            90..93 => self.punch(root, id, &path),
            93..97 => self.xattr(root, id, &path),
            _ => self.attributes(root, id, &path),
        };
        let seen = seen.map_err(|error| (error.kind(), error));
        match (&expected, &seen) {
            (Ok(()), Ok(())) => {}
            (Err(expected), Err((seen, _))) if expected == seen => {}
            _ => panic!("step {number}, {path}: expected {expected:?}, seen {seen:?}"),
        }
    }

    fn rename(&mut self, root: &Subvolume, directory: u64, path: &str, name: &str) {
        let (to, to_path, to_name) = self.place();
        let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let mode = modes[self.random.random_range(0..3_usize)];
        let expected = self.model.rename((directory, name), (to, &to_name), mode);
        let seen = root.rename_with(path, &to_path, mode);
        assert_eq!(expected.is_some(), seen.is_ok(), "{path} to {to_path} {mode:?}: {seen:?}");
    }

    fn write(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        let data = self.data();
        let appends = self.random.random_range(0..3) == 0;
        let mut offset = self.random.random_range(0..MOST_BYTES)
            / [1, 10, 1000][self.random.random_range(0..3_usize)];
        let expected = self.model.file(id).map(|file| {
            if appends {
                offset = file.len() as u64;
            }
            let end = offset as usize + data.len();
            file.resize(file.len().max(end), 0);
            file[offset as usize..end].copy_from_slice(&data);
        });
        let seen = root.lookup(path).and_then(|inode| {
            let file = inode.into_file()?;
            file.write_at(&data, offset)?;
            let mut read = vec![0; data.len()];
            assert_eq!(file.read_at(&mut read, offset)?, data.len());
            assert_eq!(read, data, "{path}");
            Ok(())
        });
        (expected, seen)
    }

    fn punch(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        let offset = self.random.random_range(0..MOST_BYTES / 3);
        let len = self.random.random_range(1..50_000);
        let expected = self.model.file(id).map(|file| {
            let end = file.len().min((offset + len) as usize);
            if (offset as usize) < end {
                file[offset as usize..end].fill(0);
            }
        });
        let file = root.lookup(path).and_then(larder::Inode::into_file);
        (expected, file.and_then(|file| file.punch_hole(offset, len)))
    }

    fn xattr(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        let name = format!("user.attribute-{}", self.random.random_range(0..4));
        let value = self.data();
        let value = value[..value.len().min(900)].to_vec();
        let removes = self.random.random_range(0..3) == 0;
        let inode = root.lookup(path);
        let Some(node) = id.and_then(|id| self.model.nodes.get_mut(&id)) else {
            return (Err(ErrorKind::NotFound), inode.map(drop));
        };
        // The kernel allows user attributes on files and directories only.
        if !matches!(node.body, Body::File(_) | Body::Directory(_)) {
            return (Ok(()), inode.map(drop));
        }
        if removes {
            let expected = node.xattrs.remove(&name).map(drop).ok_or(ErrorKind::NoSuchAttribute);
            return (expected, inode.and_then(|inode| inode.remove_xattr(&name)));
        }
        node.xattrs.insert(name.clone(), value.clone());
        (Ok(()), inode.and_then(|inode| inode.set_xattr(&name, &value, XattrMode::Any)))
    }

    fn attributes(
        &mut self,
        root: &Subvolume,
        id: Option<u64>,
        path: &str,
    ) -> (Outcome, larder::Result<()>) {
        let inode = root.lookup(path);
        let Some(node) = id.and_then(|id| self.model.nodes.get_mut(&id)) else {
            return (Err(ErrorKind::NotFound), inode.map(drop));
        };
        let permissions = self.random.random_range(0..0o1000) | 0o700;
        let seconds = self.random.random_range(-1_000_000..2_000_000_000);
        let mut attributes = SetAttributes {
            mtime: Some(Timestamp { seconds, nanoseconds: 123_456_789 }),
            ..SetAttributes::default()
        };
        node.mtime = Some(seconds);
        if !matches!(node.body, Body::Symlink(_)) {
            node.permissions = permissions;
            attributes.permissions = Some(permissions);
        }
        (Ok(()), inode.and_then(|inode| inode.set_attributes(&attributes)))
    }
}
