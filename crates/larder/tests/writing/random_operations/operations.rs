//! Random operations: the same from the same seed, on either side. They are chosen so that most can
//! be done, and some must be refused.

use larder::{SnapshotKind, XattrMode};
use larder_testkit::acl;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::RenameFlags;

use super::super::actors::{Actor, Done};
use super::super::namespace::{ACCESS, COMPRESSION, DEFAULT, USER};
use super::names::{Kind, Names, join, parent};

/// Operations of one side in a round.
pub(super) const OPERATIONS: usize = 120;
/// Created before a round if they are missing, so that it never runs out of places.
const FOLDERS: [(&str, Kind); 6] = [
    ("a", Kind::Directory),
    ("a/b", Kind::Directory),
    ("c", Kind::Directory),
    ("sub-0", Kind::Subvolume),
    ("sub-0/d", Kind::Directory),
    ("sub-1", Kind::Subvolume),
];
const NAMES: usize = 9;
/// Above this many subvolumes, some are deleted before more are created.
const MOST_SUBVOLUMES: usize = 8;
/// Above this many names, every second operation removes one.
const MOST_NAMES: usize = 200;
/// One operation in so many takes any paths that may exist.
const WILD: usize = 15;

/// The operations in words, and their results.
pub(super) type Outcome = (String, Done);

/// Does random operations, and knows the names that they leave.
#[derive(Default)]
pub(super) struct RandomOperations {
    names: Names,
}

impl RandomOperations {
    pub(super) fn do_by(&mut self, by: &dyn Actor, seed: u64) -> Vec<Outcome> {
        let random = StdRng::seed_from_u64(seed);
        let mut hand = Hand { names: &mut self.names, random, by, seed };
        let mut done = Vec::new();
        for (folder, kind) in FOLDERS {
            if hand.names.kind(folder).is_none() {
                done.push(hand.prepare(folder, kind));
            }
        }
        done.extend((0..OPERATIONS).map(|number| hand.step(number)));
        hand.forget_properties(|_| true);
        done
    }
}

/// One side's turn.
struct Hand<'a> {
    names: &'a mut Names,
    random: StdRng,
    by: &'a dyn Actor,
    seed: u64,
}

impl Hand<'_> {
    fn prepare(&mut self, folder: &str, kind: Kind) -> Outcome {
        let done = if kind == Kind::Subvolume {
            self.by.subvolume(folder)
        } else {
            self.by.mkdir(folder, 0o755)
        };
        self.note(done, |names| names.add(folder, kind));
        (format!("prepare {folder}"), done)
    }

    fn step(&mut self, number: usize) -> Outcome {
        let mode = self.below(0o10_000) as u32;
        let subvolumes = self.names.select(|_, kind| kind.is_subvolume()).len();
        let is_crowded = self.names.select(|_, _| true).len() > MOST_NAMES && self.below(2) == 0;
        let (what, done) = match self.below(110) {
            0..90 if is_crowded => self.unlink(),
            90.. if is_crowded => self.rmdir(),
            0..14 => self.make(Kind::File, 0o100_000 | mode & 0o777),
            14..23 => self.make(Kind::Directory, 0o040_000 | mode & 0o777 | 0o700),
            23..25 => self.make(Kind::Special, 0o010_000 | mode & 0o777),
            25..28 => self.symlink(),
            28..32 => self.link(),
            32..34 => self.unnamed(mode),
            34..38 => self.unlink(),
            38..41 => self.rmdir(),
            41..52 => self.rename(),
            52..56 => {
                let path = self.some(|kind| !matches!(kind, Kind::Symlink | Kind::ReadOnly));
                (format!("chmod {path} {mode:o}"), self.by.chmod(&path, mode))
            }
            56..59 => {
                let path = self.some(|kind| kind != Kind::ReadOnly);
                (format!("chown {path}"), self.by.chown(&path, mode, mode / 2))
            }
            59..66 => self.xattr(),
            66..70 => self.flags(),
            70..98 => self.data(),
            98..103 if subvolumes < MOST_SUBVOLUMES => self.snapshot(number),
            98..105 if subvolumes < MOST_SUBVOLUMES => self.subvolume(),
            _ => self.delete_subvolume(),
        };
        (format!("{number}: {what}"), done)
    }

    fn make(&mut self, kind: Kind, mode: u32) -> (String, Done) {
        let path = self.new_path();
        let done = match kind {
            Kind::Directory => self.by.mkdir(&path, mode & 0o777),
            _ => self.by.mknod(&path, mode, (0, 0)),
        };
        self.note(done, |names| names.add(&path, kind));
        (format!("make {path} {mode:o}"), done)
    }

    fn symlink(&mut self) -> (String, Done) {
        let (path, target) = (self.new_path(), format!("n{}", self.below(NAMES)));
        let done = self.by.symlink(&target, &path);
        self.note(done, |names| names.add(&path, Kind::Symlink));
        (format!("symlink {path} to {target}"), done)
    }

    fn link(&mut self) -> (String, Done) {
        let original = self.some(|kind| matches!(kind, Kind::File | Kind::Special | Kind::Symlink));
        let path = self.new_path_beside(&original);
        let done = self.by.link(&original, &path);
        let kind = self.names.kind(&original);
        self.note(done, |names| names.add(&path, kind.expect("it was linked")));
        (format!("link {original} as {path}"), done)
    }

    fn unnamed(&mut self, mode: u32) -> (String, Done) {
        let path = self.new_path();
        let done = self.by.unnamed(&or_top(parent(&path)), mode & 0o777, Some(&path));
        self.note(done, |names| names.add(&path, Kind::File));
        (format!("name {path}"), done)
    }

    fn unlink(&mut self) -> (String, Done) {
        let path = self.some(|kind| matches!(kind, Kind::File | Kind::Special | Kind::Symlink));
        let done = self.by.unlink(&path);
        self.note(done, |names| names.remove(&path));
        (format!("unlink {path}"), done)
    }

    fn rmdir(&mut self) -> (String, Done) {
        let empty = self.names.select(|path, kind| {
            kind == Kind::Directory && self.names.is_empty(path) && is_deep(path)
        });
        let path = self.one_of(empty);
        let done = self.by.rmdir(&path);
        self.note(done, |names| names.remove(&path));
        (format!("rmdir {path}"), done)
    }

    fn rename(&mut self) -> (String, Done) {
        const FLAGS: [RenameFlags; 5] = [
            RenameFlags::empty(),
            RenameFlags::empty(),
            RenameFlags::NOREPLACE,
            RenameFlags::EXCHANGE,
            RenameFlags::WHITEOUT,
        ];
        let flags = FLAGS[self.below(FLAGS.len())];
        let from = self.some(|kind| kind != Kind::ReadOnly);
        let kind = self.names.kind(&from);
        let takes_place =
            flags == RenameFlags::EXCHANGE || flags != RenameFlags::NOREPLACE && self.below(3) == 0;
        let to = if takes_place {
            let above = self.names.subvolume_of(&from);
            let others = self.names.select(|path, other| {
                let is_apart = path != from
                    && !path.starts_with(&format!("{from}/"))
                    && !from.starts_with(&format!("{path}/"));
                let fits = flags == RenameFlags::EXCHANGE && !other.is_subvolume()
                    || kind.is_some_and(|kind| kind.replaces(other))
                        && (flags == RenameFlags::EXCHANGE || self.names.is_empty(path));
                is_apart && fits && self.names.subvolume_of(path) == above
            });
            self.one_of(others)
        } else {
            self.new_path_beside(&from)
        };
        let done = self.by.rename(&from, &to, flags);
        self.note(done, |names| match flags {
            RenameFlags::EXCHANGE => names.exchange(&from, &to),
            RenameFlags::WHITEOUT => {
                names.rename(&from, &to);
                names.add(&from, Kind::Special);
            }
            _ => names.rename(&from, &to),
        });
        (format!("rename {from} to {to}, {flags:?}"), done)
    }

    fn xattr(&mut self) -> (String, Done) {
        let any = XattrMode::Any;
        let path = self.some(|kind| matches!(kind, Kind::File | Kind::Directory | Kind::Subvolume));
        let name = format!("user.x{}", self.below(3));
        match self.below(9) {
            0 => (
                format!("default acl of {path}"),
                self.by.set_xattr(&path, DEFAULT, &acl(&USER), any),
            ),
            1 => (format!("acl of {path}"), self.by.set_xattr(&path, ACCESS, &acl(&USER), any)),
            2 => (format!("compress {path}"), self.by.set_xattr(&path, COMPRESSION, b"zstd", any)),
            3 => (format!("compress {path} no more"), self.by.remove_xattr(&path, COMPRESSION)),
            4 => (format!("remove {name} of {path}"), self.by.remove_xattr(&path, &name)),
            _ => {
                let mut value = self.bytes();
                value.truncate(700);
                let done = self.by.set_xattr(&path, &name, &value, any);
                (format!("set {name} of {path}, {} bytes", value.len()), done)
            }
        }
    }

    fn flags(&mut self) -> (String, Done) {
        const FLAGS: [u32; 6] = [0, 0x4, 0x400, 0x80_0000, 0x80, 0x8];
        let flags = FLAGS[self.below(FLAGS.len())];
        let path = self.some(|kind| matches!(kind, Kind::File | Kind::Directory));
        (format!("flags of {path} {flags:#x}"), self.by.set_flags(&path, flags))
    }

    /// An operation that changes the data of a file.
    fn data(&mut self) -> (String, Done) {
        let path = self.some(|kind| kind == Kind::File);
        let (offset, len) = (self.offset(), self.offset() + 1);
        match self.below(28) {
            0..15 => {
                let data = self.bytes();
                let what = format!("write {path} at {offset}, {} bytes", data.len());
                (what, self.by.write_at(&path, &data, offset))
            }
            15..19 => (format!("truncate {path} to {offset}"), self.by.truncate(&path, offset)),
            19..22 => {
                (format!("punch {path} at {offset}, {len}"), self.by.punch(&path, offset, len))
            }
            22..24 => {
                let done = self.by.allocate(&path, offset, len);
                (format!("allocate {path} at {offset}, {len}"), done)
            }
            24..26 => {
                let done = self.by.zero_range(&path, offset, len);
                (format!("zero {path} at {offset}, {len}"), done)
            }
            _ => {
                let source = self.some(|kind| kind == Kind::File);
                let to = offset - offset % 4096;
                // All of the source, from its start: everything in it can be shared.
                let done = self.by.clone_range(&path, &source, to);
                (format!("clone {source} to {path} at {to}"), done)
            }
        }
    }

    /// Removes the compression property from files and directories. The kernel knows the property
    /// if it remembers having set it, but not always if it has to read it first, see
    /// `requests_that_the_kernel_does_not_pass_on`: no mount and no snapshot may have one.
    fn forget_properties(&self, is_wanted: impl Fn(&str) -> bool) {
        let may_have =
            |path: &str, kind: Kind| (kind == Kind::File || kind.takes_names()) && is_wanted(path);
        for path in self.names.select(may_have) {
            let _ = self.by.remove_xattr(&path, COMPRESSION);
        }
    }

    fn snapshot(&mut self, number: usize) -> (String, Done) {
        let kinds = [SnapshotKind::ReadOnly, SnapshotKind::Writable];
        let kind = kinds[self.below(2)];
        let source = self.some(|kind| kind == Kind::Subvolume);
        self.forget_properties(|path| path == source || self.names.subvolume_of(path) == source);
        let path = format!("snapshot-{}-{number}", self.seed);
        let done = self.by.snapshot(&source, &path, kind);
        self.note(done, |names| match kind {
            SnapshotKind::ReadOnly => names.add(&path, Kind::ReadOnly),
            SnapshotKind::Writable => names.snapshot(&source, &path),
        });
        (format!("snapshot of {source} at {path}, {kind:?}"), done)
    }

    fn subvolume(&mut self) -> (String, Done) {
        let path = self.new_path();
        let done = self.by.subvolume(&path);
        self.note(done, |names| names.add(&path, Kind::Subvolume));
        (format!("subvolume {path}"), done)
    }

    fn delete_subvolume(&mut self) -> (String, Done) {
        let all = self.names.select(|path, kind| {
            kind.is_subvolume()
                && !self
                    .names
                    .select(|below, kind| {
                        kind.is_subvolume() && self.names.subvolume_of(below) == path
                    })
                    .iter()
                    .any(|below| below != path)
        });
        let path = self.one_of(all);
        let done = self.by.delete_subvolume(&path);
        self.note(done, |names| names.remove(&path));
        (format!("delete {path}"), done)
    }

    fn note(&mut self, done: Done, change: impl FnOnce(&mut Names)) {
        if done.is_ok() {
            change(self.names);
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.random_range(0..limit)
    }

    /// A path of a wanted kind, now and then of any.
    fn some(&mut self, is_wanted: impl Fn(Kind) -> bool) -> String {
        let paths = self.names.select(|_, kind| is_wanted(kind));
        self.one_of(paths)
    }

    fn one_of(&mut self, mut paths: Vec<String>) -> String {
        if paths.is_empty() || self.below(WILD) == 0 {
            return self.any_path();
        }
        let number = self.below(paths.len());
        paths.swap_remove(number)
    }

    /// Everything that exists or may exist, with one path for each.
    fn any_path(&mut self) -> String {
        let mut folders = self.names.select(|_, kind| kind != Kind::Symlink);
        folders.push(String::new());
        let number = self.below(folders.len());
        join(&folders[number], &format!("n{}", self.below(NAMES)))
    }

    /// A path where nothing is, now and then another.
    fn new_path(&mut self) -> String {
        let mut folders = self.names.select(|path, kind| kind.takes_names() && depth(path) < 5);
        folders.push(String::new());
        self.new_path_in(folders)
    }

    /// The same in the subvolume of `path`, and not below it.
    fn new_path_beside(&mut self, path: &str) -> String {
        let above = self.names.subvolume_of(path).to_owned();
        let is_above = |folder: &str, kind: Kind| {
            folder == above || !kind.is_subvolume() && self.names.subvolume_of(folder) == above
        };
        let mut folders = self.names.select(|folder, kind| {
            let is_within = folder == path || folder.starts_with(&format!("{path}/"));
            kind.takes_names() && is_above(folder, kind) && !is_within && depth(folder) < 5
        });
        if above.is_empty() {
            folders.push(String::new());
        }
        self.new_path_in(folders)
    }

    fn new_path_in(&mut self, mut folders: Vec<String>) -> String {
        if self.below(WILD) == 0 {
            return self.any_path();
        }
        // Folders may be full.
        while !folders.is_empty() {
            let number = self.below(folders.len());
            let folder = folders.swap_remove(number);
            let first = self.below(NAMES);
            let paths = (0..NAMES).map(|at| join(&folder, &format!("n{}", (first + at) % NAMES)));
            if let Some(path) = { paths }.find(|path| self.names.kind(path).is_none()) {
                return path;
            }
        }
        self.any_path()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = [30, 3000, 9000, 200_000][self.below(4)];
        let (len, byte) = (self.below(most) + 1, self.random.random::<u8>());
        (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect()
    }

    fn offset(&mut self) -> u64 {
        let most = [1, 100, 10_000, 400_000][self.below(4)];
        self.below(most) as u64
    }
}

fn or_top(folder: &str) -> String {
    if folder.is_empty() { ".".into() } else { folder.into() }
}

fn depth(path: &str) -> usize {
    path.split('/').count()
}

/// Whether a directory is none of those that every round creates.
fn is_deep(path: &str) -> bool {
    FOLDERS.iter().all(|(folder, _)| *folder != path)
}
