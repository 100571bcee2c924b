//! Random changes of a folder, with many renames and replacements.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number of the sequence.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let word = self.next().to_le_bytes();
        (0..len).map(|at| if at % 3 == 0 { word[at % 8] } else { self.next() as u8 }).collect()
    }
}

/// The content of the folder, which is itself the first of the folders.
struct Contents {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

impl Contents {
    fn of(root: &Path) -> Self {
        let mut all =
            Self { folders: vec![root.to_owned()], files: Vec::new(), others: Vec::new() };
        let mut at = 0;
        while at < all.folders.len() {
            let mut entries: Vec<_> = fs::read_dir(&all.folders[at])
                .expect("a folder can be read")
                .map(|entry| entry.expect("an entry can be read"))
                .collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let file_type = entry.file_type().expect("an entry has a type");
                if file_type.is_dir() {
                    all.folders.push(entry.path());
                } else if file_type.is_file() {
                    all.files.push(entry.path());
                } else {
                    all.others.push(entry.path());
                }
            }
            at += 1;
        }
        all
    }

    fn any(&self, random: &mut Random) -> Option<PathBuf> {
        let all: Vec<&PathBuf> =
            self.folders[1..].iter().chain(&self.files).chain(&self.others).collect();
        (!all.is_empty()).then(|| (*random.pick(&all)).clone())
    }
}

/// Makes `count` changes below `root`.
pub fn mutate(root: &Path, random: &mut Random, count: usize) {
    for _ in 0..count {
        let contents = Contents::of(root);
        change(&contents, random);
    }
}

/// One of few names, so that names are used again.
fn name(random: &mut Random) -> OsString {
    format!("n{}", random.below(14)).into()
}

/// A path in any folder, which may exist.
fn somewhere(contents: &Contents, random: &mut Random) -> PathBuf {
    random.pick(&contents.folders).join(name(random))
}

/// Makes one change; impossible ones have no effect.
fn change(contents: &Contents, random: &mut Random) {
    let target = somewhere(contents, random);
    let any = contents.any(random);
    let file = (!contents.files.is_empty()).then(|| random.pick(&contents.files).clone());
    match (random.below(100), any, file) {
        (0..10, ..) => {
            let _ = fs::create_dir(&target);
        }
        (10..20, ..) => make_file(&target, random),
        (20..23, ..) => make_other(&target, random),
        (23..45, Some(from), _) => {
            let _ = fs::rename(from, target);
        }
        (45..55, Some(one), _) => {
            if let Some(other) = contents.any(random) {
                let _ = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
            }
        }
        (55..59, Some(from), _) => turn_inside_out(&from),
        (59..63, Some(victim), _) => replace_by_another_type(&victim, random),
        (63..68, Some(victim), _) => remove(&victim),
        (68..74, _, Some(file)) => {
            let _ = fs::hard_link(file, target);
        }
        (74..77, _, Some(file)) => {
            let copy = File::create_new(&target);
            if let (Ok(copy), Ok(file)) = (copy, File::open(file)) {
                rustix::fs::ioctl_ficlone(copy, file).expect("btrfs can clone");
            }
        }
        (77..90, _, Some(file)) => change_content(&file, random),
        (90..100, Some(any), _) => change_attributes(&any, random),
        _ => {}
    }
}

fn make_file(path: &Path, random: &mut Random) {
    let len = match random.below(4) {
        0 => 0,
        1 => random.below(2000),
        2 => random.below(20_000),
        _ => random.below(150_000),
    };
    if !path.exists() {
        let _ = fs::write(path, random.bytes(len));
    }
}

fn make_other(path: &Path, random: &mut Random) {
    if random.below(2) == 0 {
        let _ = symlink(format!("to/{}", random.below(5)), path);
    } else {
        let mode = rustix::fs::Mode::from_raw_mode(0o640);
        let _ = rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, mode, 0);
    }
}

/// Swaps a folder and its parent: `a/b` becomes `b`, and `a` becomes `b/a`.
fn turn_inside_out(path: &Path) {
    let Some((inner, outer)) = Some(path).zip(path.parent()) else { return };
    let Some((above, outer_name)) = outer.parent().zip(outer.file_name()) else { return };
    let Some(inner_name) = inner.file_name() else { return };
    let moved = above.join(inner_name);
    let is_in_the_tree = outer_name.to_string_lossy().starts_with('n');
    if inner.is_dir() && is_in_the_tree && !moved.exists() && fs::rename(inner, &moved).is_ok() {
        let _ = fs::rename(outer, moved.join(outer_name));
    }
}

fn replace_by_another_type(path: &Path, random: &mut Random) {
    let was_folder = path.is_dir() && !path.is_symlink();
    remove(path);
    if was_folder {
        make_file(path, random);
    } else {
        let _ = fs::create_dir(path);
        make_file(&path.join(name(random)), random);
    }
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).expect("a folder can be removed");
    } else {
        fs::remove_file(path).expect("a file can be removed");
    }
}

fn change_content(path: &Path, random: &mut Random) {
    let file = OpenOptions::new().write(true).open(path).expect("a file opens");
    let len = file.metadata().expect("it is a file").len();
    let at = random.next() % (len + 1);
    let count = 1 + random.below(30_000);
    match random.below(5) {
        0 => file.write_all_at(&random.bytes(count), at).expect("written"),
        1 => file.write_all_at(&random.bytes(count), len).expect("written"),
        2 => file.set_len(random.next() % 200_000).expect("resized"),
        3 => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, at, count as u64).expect("punched");
        }
        _ => {
            let flags = FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, at, count as u64).expect("allocated");
        }
    }
}

fn change_attributes(path: &Path, random: &mut Random) {
    if path.is_symlink() || !(path.is_file() || path.is_dir()) {
        return;
    }
    let attribute = format!("user.x{}", random.below(3));
    let flags = XattrFlags::empty();
    match random.below(9) {
        0..2 => {
            let value = random.bytes(random.clone().below(300));
            rustix::fs::setxattr(path, attribute, &value, flags).expect("set");
        }
        2 => {
            let _ = rustix::fs::removexattr(path, attribute);
        }
        3 => {
            let mode = random.next() as u32 & 0o7777;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
        }
        4 => {
            let (uid, gid) = (Uid::from_raw(random.next() as u32 % 9), Gid::from_raw(7));
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::empty()).expect("given");
        }
        5 => {
            let time = Timespec { tv_sec: random.next() as i64 % (1 << 31), tv_nsec: 5 };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).expect("set");
        }
        6 => {
            let name = if path.is_dir() && random.below(2) == 0 {
                "system.posix_acl_default"
            } else {
                "system.posix_acl_access"
            };
            if random.below(3) == 0 {
                let _ = rustix::fs::removexattr(path, name);
            } else {
                let acl = access_control_list(random.below(8) as u16);
                rustix::fs::setxattr(path, name, &acl, flags).expect("set");
            }
        }
        7 if path.is_dir() => {
            let value = *random.pick(&["zstd", "lzo", ""]);
            rustix::fs::setxattr(path, "btrfs.compression", value.as_bytes(), flags).expect("set");
        }
        _ => {
            let capability = [1, 0, 0, 2, 1 << random.below(5), 0, 0, 0, 0, 0, 0, 0];
            let capability = [&capability[..], &[0; 8]].concat();
            let _ = rustix::fs::setxattr(path, "security.capability", &capability, flags);
        }
    }
}

/// In the form of system calls: owner, one user with `permissions`, group, mask, others.
fn access_control_list(permissions: u16) -> Vec<u8> {
    let nobody = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, nobody), (2, permissions, 5), (4, 5, nobody), (0x10, 7, nobody), (0x20, 1, nobody)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}
