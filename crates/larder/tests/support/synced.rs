//! Random work with syncs of single files and directories, and what each sync promised.
//!
//! After every step the whole state is noted. After a power cut an inode that was synced must be in
//! its state at the sync or in a later one, whatever happened to the rest.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use larder::{
    AllocateMode, Directory, FileType, Filesystem, Inode, RenameMode, Subvolume, XattrMode,
};
use larder_power_cuts::History;
use larder_test_devices::Recording;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A subvolume, and an inode in it.
pub(crate) type Number = (u64, u64);

/// The number of an inode.
pub(crate) fn number_of(inode: &Inode) -> Number {
    (inode.subvolume_id(), inode.metadata().inode)
}

/// The whole state, by inode.
#[derive(Default)]
pub(crate) struct State {
    inodes: BTreeMap<Number, Seen>,
    folders: BTreeMap<Number, BTreeMap<String, Number>>,
}

/// An inode without its names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    file_type: FileType,
    mode: u32,
    content: u64,
    len_bytes: u64,
    xattrs: BTreeMap<String, Vec<u8>>,
}

impl State {
    pub(crate) fn of(root: &Subvolume) -> Self {
        let mut state = Self::default();
        state.enter(&root.root().unwrap());
        state
    }

    fn enter(&mut self, folder: &Directory) {
        let number = number_of(folder);
        self.inodes.insert(number, see(folder));
        let mut names = BTreeMap::new();
        for entry in folder.entries().unwrap() {
            let entry = entry.unwrap();
            let inode =
                entry.open().unwrap_or_else(|error| panic!("{}: {error}", entry.name().display()));
            let child = number_of(&inode);
            names.insert(entry.name().to_str().unwrap().to_owned(), child);
            if inode.file_type() == FileType::Directory {
                self.enter(&inode.into_directory().unwrap());
            } else {
                self.inodes.entry(child).or_insert_with(|| see(&inode));
            }
        }
        self.folders.insert(number, names);
    }

    fn name(&self, folder: Number, name: &str) -> Option<Number> {
        self.folders.get(&folder)?.get(name).copied()
    }

    fn names_of(&self, number: Number) -> BTreeSet<(Number, String)> {
        let all = self.folders.iter().flat_map(|(folder, names)| {
            names.iter().map(move |(name, inode)| (*folder, name.clone(), *inode))
        });
        all.filter(|(.., inode)| *inode == number).map(|(folder, name, _)| (folder, name)).collect()
    }
}

fn see(inode: &Inode) -> Seen {
    let metadata = inode.metadata();
    let mut hash = larder_testkit::manifest::ContentHash::new();
    let mut len_bytes = 0;
    if inode.file_type() == FileType::Regular {
        let file = inode.clone().into_file().unwrap();
        len_bytes = file.len_bytes();
        let mut data = vec![0; len_bytes as usize];
        assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
        hash.update(&data);
    }
    let xattrs = inode.xattrs().map(|xattr| {
        let xattr = xattr.unwrap();
        (xattr.name.into_string().unwrap(), xattr.value)
    });
    Seen {
        file_type: inode.file_type(),
        mode: metadata.mode,
        content: hash.finish(),
        len_bytes,
        xattrs: xattrs.collect(),
    }
}

/// The promise of a sync that returned.
#[derive(Debug)]
pub(crate) enum Promised {
    /// The inode with this number.
    Inode(Number),
    Everything,
}

impl Promised {
    pub(crate) fn is_kept(&self, since: &[State], found: &State) -> Result<(), String> {
        match self {
            Self::Inode(number) => inode_kept(*number, since, found),
            Self::Everything => all_is_there(since, found),
        }
    }
}

/// Whether everything exists that was in the first of these states and stayed.
fn all_is_there(since: &[State], found: &State) -> Result<(), String> {
    for number in since[0].inodes.keys() {
        let stays = since.iter().all(|state| state.inodes.contains_key(number));
        if stays && !found.inodes.contains_key(number) {
            return Err(format!("inode {number:?} is lost"));
        }
    }
    for (folder, names) in &since[0].folders {
        for name in names.keys() {
            let stays = since.iter().all(|state| state.name(*folder, name).is_some());
            if stays && found.name(*folder, name).is_none() {
                return Err(format!("{name} of {folder:?} is lost"));
            }
        }
    }
    Ok(())
}

/// Whether an inode that was synced in the first of these states is as in one of them.
fn inode_kept(number: Number, since: &[State], found: &State) -> Result<(), String> {
    if since.iter().any(|state| !state.inodes.contains_key(&number)) {
        // Removed since then.
        return Ok(());
    }
    let Some(seen) = found.inodes.get(&number) else { return Err("it is lost".into()) };
    // Data that was not synced may be lost, but not later changes of attributes.
    let is_same = |part: fn(&Seen, &Seen) -> bool| {
        since.iter().any(|state| part(&state.inodes[&number], seen))
    };
    let has_data = is_same(|a, b| (a.content, a.len_bytes) == (b.content, b.len_bytes));
    let has_attributes = is_same(|a, b| (a.mode, &a.xattrs) == (b.mode, &b.xattrs));
    if !has_data || !has_attributes {
        let then = &since[0].inodes[&number];
        return Err(format!("it is {seen:?} and was {then:?}"));
    }
    for (folder, name) in since[0].names_of(number) {
        let stays = since.iter().all(|state| state.name(folder, &name) == Some(number));
        if stays && found.name(folder, &name) != Some(number) {
            return Err(format!("its name {name} of {folder:?} is lost"));
        }
    }
    for (folder, name) in found.names_of(number) {
        if !since.iter().any(|state| state.name(folder, &name) == Some(number)) {
            return Err(format!("its name {name} of {folder:?} came back"));
        }
    }
    let Some(names) = found.folders.get(&number) else { return Ok(()) };
    let all = since.iter().flat_map(|state| state.folders[&number].keys()).chain(names.keys());
    for name in all.collect::<BTreeSet<_>>() {
        let inode = found.name(number, name);
        if !since.iter().any(|state| state.name(number, name) == inode) {
            return Err(format!("{name} in it leads to {inode:?}"));
        }
    }
    Ok(())
}

struct Player {
    random: StdRng,
    root: Subvolume,
}

impl Player {
    fn below(&mut self, limit: usize) -> usize {
        self.random.random_range(0..limit)
    }

    fn folder(&mut self) -> String {
        let depth = self.below(3);
        (0..depth).map(|_| ["d0/", "d1/", "d2/"][self.below(3)]).collect()
    }

    fn path(&mut self) -> String {
        let folder = self.folder();
        format!("{folder}f{}", self.below(8))
    }

    /// Something to sync.
    fn target(&mut self) -> Option<Inode> {
        let path = if self.below(3) == 0 { self.folder() } else { self.path() };
        self.root.lookup(path).ok()
    }

    /// Does something that may be refused. Returns what.
    fn step(&mut self) -> String {
        let (path, other) = (self.path(), self.path());
        let root = self.root.clone();
        let choice = self.below(20);
        let (at, len) = (self.below(60_000) as u64, self.below(30_000));
        let byte = self.below(256) as u8;
        let folder = {
            let folder = self.folder();
            format!("{folder}d{}", self.below(3))
        };
        let other_folder = {
            let folder = self.folder();
            format!("{folder}d{}", self.below(3))
        };
        let mode = [AllocateMode::Grow, AllocateMode::KeepSize][self.below(2)];
        let (what, done) = match choice {
            0..3 => (
                format!("create {path}, write {len}"),
                root.create(&path, 0o644).and_then(|file| file.write_at(&vec![byte; len], 0)),
            ),
            3..6 => (
                format!("write {path} at {at}, {len}"),
                root.open_file(&path).and_then(|file| file.write_at(&vec![byte; len], at)),
            ),
            6 => (
                format!("truncate {path} to {at}"),
                root.open_file(&path).and_then(|file| file.set_len(at)),
            ),
            7 => (
                format!("punch {path} at {at}, {len}"),
                root.open_file(&path).and_then(|file| file.punch_hole(at, len as u64)),
            ),
            8 => (
                format!("allocate {path} at {at}, {len}"),
                root.open_file(&path).and_then(|file| file.allocate(at, len as u64 + 1, mode)),
            ),
            9..11 => (format!("remove {path}"), root.remove_file(&path)),
            11..14 => (format!("rename {path} to {other}"), root.rename(&path, &other)),
            14 => (
                format!("exchange {path} and {other}"),
                root.rename_with(&path, &other, RenameMode::Exchange),
            ),
            15 => (format!("link {path} as {other}"), root.hard_link(&path, &other)),
            16 => {
                (format!("make folder {folder}"), root.create_directory(&folder, 0o755).map(drop))
            }
            17 => (format!("remove folder {folder}"), root.remove_directory(&folder)),
            18 => (
                format!("rename folder {folder} to {other_folder}"),
                root.rename(&folder, &other_folder),
            ),
            _ => {
                let name = format!("user.{}", byte % 4);
                let inode = root.lookup(&path);
                let done = inode.and_then(|inode| {
                    if byte < 60 {
                        inode.remove_xattr(&name)
                    } else {
                        inode.set_xattr(&name, &vec![byte; len % 300], XattrMode::Any)
                    }
                });
                (format!("attribute {name} of {path}"), done)
            }
        };
        match done {
            Ok(()) => what,
            Err(error) => format!("{what}: {error}"),
        }
    }
}

/// Plays `rounds` rounds on a recorded file system, each of some steps and a sync. Returns the
/// states and the promises.
pub(crate) fn play(
    fs: &Filesystem,
    recording: &Recording,
    seed: u64,
    rounds: usize,
) -> History<State, Promised> {
    let root = fs.subvolume("/").unwrap();
    let mut player = Player { random: StdRng::seed_from_u64(seed), root: root.clone() };
    let mut history = History::new(0, State::of(&root));
    history.promise(Promised::Everything, 0);
    for round in 0..rounds {
        for _ in 0..player.below(7) {
            let begun = recording.position();
            let step = player.step();
            history.note(begun, step, State::of(&root));
        }
        if round % 40 == 20 {
            fs.sync().unwrap();
            history.promise(Promised::Everything, recording.position());
        } else if let Some(inode) = player.target() {
            inode.sync().unwrap();
            let number = number_of(&inode);
            history.promise(Promised::Inode(number), recording.position());
        }
    }
    history
}
