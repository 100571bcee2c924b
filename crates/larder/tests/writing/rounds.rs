//! Round trips on every profile that can be written: the kernel changes a file system, Larder changes it, the
//! kernel scrubs it, again and again, with random operations. A twin on which the kernel alone does the same
//! shows what must come of it.
//!
//! `LARDER_ROUNDS=50 cargo test -p larder --test writing rounds` makes more rounds than the few here.

use larder::{SnapshotKind, XattrMode};
use larder_testkit::manifest::Body;
use larder_testkit::{
    Content, ImageSpec, KernelImage, Manifest, Profile, Scale, assert_same, oracle,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::RenameFlags;

use super::namespace::{ACCESS, Actor, COMPRESSION, DEFAULT, Done, Kernel, Larder, USER, acl};
use super::{check, open, support};

/// Operations of one side in a round.
const OPERATIONS: usize = 120;
const FOLDERS: [&str; 7] = ["", "a", "a/b", "c", "sub-0", "sub-0/d", "sub-1"];
const NAMES: usize = 7;

/// The number that a variable of the environment has, or a usual one.
pub(crate) fn from_environment(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// Random operations: the same from the same seed, whoever does them.
struct Mischief {
    random: StdRng,
    seed: u64,
}

impl Mischief {
    fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), seed }
    }

    fn do_by(mut self, by: &dyn Actor) -> Vec<(String, Done)> {
        let folders = FOLDERS.iter().filter(|folder| !folder.is_empty()).map(|folder| {
            let is_subvolume = matches!(*folder, "sub-0" | "sub-1");
            let made = if is_subvolume { by.subvolume(folder) } else { by.mkdir(folder, 0o755) };
            ((*folder).to_owned(), made)
        });
        let mut done: Vec<(String, Done)> = folders.collect();
        done.extend((0..OPERATIONS).map(|number| self.step(by, number)));
        done
    }

    fn path(&mut self) -> String {
        let folder = FOLDERS[self.random.random_range(0..FOLDERS.len())];
        match self.random.random_range(0..8) {
            0 if !folder.is_empty() => folder.into(),
            _ if folder.is_empty() => format!("n{}", self.random.random_range(0..NAMES)),
            _ => format!("{folder}/n{}", self.random.random_range(0..NAMES)),
        }
    }

    fn data(&mut self) -> Vec<u8> {
        let most = [30, 3000, 9000, 200_000][self.random.random_range(0..4_usize)];
        let (len, byte) = (self.random.random_range(1..most), self.random.random::<u8>());
        (0..len).map(|at: usize| byte.wrapping_add((at / 7) as u8)).collect()
    }

    fn offset(&mut self) -> u64 {
        let most = [1, 100, 10_000, 400_000][self.random.random_range(0..4_usize)];
        self.random.random_range(0..most)
    }

    fn step(&mut self, by: &dyn Actor, number: usize) -> (String, Done) {
        let (path, other) = (self.path(), self.path());
        let mode = self.random.random_range(0..0o10_000_u32);
        let (what, done) = match self.random.random_range(0..100) {
            0..12 => ("make", by.mknod(&path, 0o100_000 | mode & 0o777, (0, 0))),
            12..20 => ("mkdir", by.mkdir(&path, mode & 0o777 | 0o700)),
            20..22 => ("fifo", by.mknod(&path, 0o010_000 | mode & 0o777, (0, 0))),
            22..25 => ("symlink", by.symlink(&format!("n{}", mode as usize % NAMES), &path)),
            25..29 => ("link", by.link(&path, &other)),
            29..31 => ("unnamed", by.unnamed("a", mode & 0o777, Some(&path))),
            31..35 => ("unlink", by.unlink(&path)),
            35..38 => ("rmdir", by.rmdir(&path)),
            38..48 => {
                let flags = [
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                    RenameFlags::WHITEOUT,
                ];
                ("rename", by.rename(&path, &other, flags[mode as usize % 4]))
            }
            48..52 => ("chmod", by.chmod(&path, mode)),
            52..55 => ("chown", by.chown(&path, mode, mode / 2)),
            55..60 => ("xattr", self.set_xattr(by, &path, mode)),
            60..62 => ("remove xattr", by.remove_xattr(&path, &format!("user.x{}", mode % 4))),
            62..66 => {
                let flags = [0, 0x4, 0x400, 0x80_0000, 0x80, 0x8];
                ("flags", by.set_flags(&path, flags[mode as usize % flags.len()]))
            }
            66..82 => {
                let (data, offset) = (self.data(), self.offset());
                ("write", by.write_at(&path, &data, offset))
            }
            82..87 => ("truncate", by.truncate(&path, self.offset())),
            87..91 => {
                let (offset, len_bytes) = (self.offset(), self.offset() + 1);
                ("punch", by.punch(&path, offset, len_bytes))
            }
            91..94 => ("subvolume", by.subvolume(&format!("sub-{}", mode % 2))),
            94..98 => {
                let kinds = [SnapshotKind::ReadOnly, SnapshotKind::Writable];
                let name = format!("snapshot-{}-{number}", self.seed);
                let kind = kinds[mode as usize % 2];
                ("snapshot", by.snapshot(&format!("sub-{}", mode / 2 % 2), &name, kind))
            }
            _ => ("delete", by.delete_subvolume(&format!("sub-{}", mode % 2))),
        };
        (format!("{number}: {what} {path}, {other}, {mode:o}"), done)
    }

    fn set_xattr(&mut self, by: &dyn Actor, path: &str, mode: u32) -> Done {
        let any = XattrMode::Any;
        match mode % 6 {
            0 => by.set_xattr(path, DEFAULT, &acl(&USER), any),
            1 => by.set_xattr(path, ACCESS, &acl(&USER), any),
            2 => by.set_xattr(path, COMPRESSION, b"zstd", any),
            _ => {
                let mut value = self.data();
                value.truncate(700);
                by.set_xattr(path, &format!("user.x{}", mode % 4), &value, any)
            }
        }
    }
}

/// What two file systems that were changed alike share: not times, nor numbers, some of which are lost by
/// who is refused, nor where data is.
fn in_common(mut manifest: Manifest) -> Manifest {
    for entry in manifest.entries.values_mut() {
        (entry.atime, entry.mtime, entry.ctime, entry.otime) = Default::default();
        (entry.inode, entry.subvolume, entry.allocated_bytes) = (0, 0, 0);
        if let Body::File { data, .. } = &mut entry.body {
            data.clear();
        }
    }
    manifest
}

fn round_trips(name: &str, profile: Profile, devices: usize, seed: u64) {
    // Devices that hold no other's data are small, those of copies have to hold all.
    let spec = ImageSpec::new(name).devices(&vec![512 << 20; devices]).profiles(profile, profile);
    let content = Content::new(seed).scale(Scale::Small);
    let image = KernelImage::build(&spec, &content);
    let twin = KernelImage::build(&ImageSpec::new("twin"), &content);
    for round in 0..from_environment("LARDER_ROUNDS", 2) as u64 {
        let seeds = [seed * 1000 + round * 2, seed * 1000 + round * 2 + 1];
        let expected = {
            let mount = twin.mount("noatime");
            let by = Kernel(mount.path());
            seeds.map(|seed| Mischief::new(seed).do_by(&by))
        };
        let by_kernel = {
            let mount = image.mount("noatime");
            Mischief::new(seeds[0]).do_by(&Kernel(mount.path()))
        };
        compare(&by_kernel, &expected[0], "the kernel");
        let fs = open(&image);
        let by_larder = Mischief::new(seeds[1]).do_by(&Larder(fs.subvolume("/").unwrap()));
        compare(&by_larder, &expected[1], "larder");
        fs.sync().unwrap();
        let seen = in_common(support::manifest(&fs));
        drop(fs);
        check(&image, &format!("round {round}"));
        let mount = image.mount("noatime");
        oracle::scrub(&mount).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let of_kernel = in_common(Manifest::of_tree(mount.path()));
        assert_same(&of_kernel, &seen);
        let twin = twin.mount("ro,noatime");
        assert_same(&in_common(Manifest::of_tree(twin.path())), &of_kernel);
    }
}

/// Each operation is done or refused, whoever does it.
fn compare(seen: &[(String, Done)], expected: &[(String, Done)], by: &str) {
    for ((what, seen), (_, expected)) in seen.iter().zip(expected) {
        assert_eq!(seen.is_ok(), expected.is_ok(), "by {by}: {what}: {seen:?}, {expected:?}");
    }
    let done = seen.iter().filter(|(_, done)| done.is_ok()).count();
    assert!(done > OPERATIONS / 30, "{done}");
}

#[test]
fn single() {
    round_trips("single", Profile::Single, 1, 101);
}

#[test]
fn dup() {
    round_trips("dup", Profile::Dup, 1, 102);
}

#[test]
fn raid0() {
    round_trips("raid0", Profile::Raid0, 2, 103);
}

#[test]
fn raid1() {
    round_trips("raid1", Profile::Raid1, 2, 104);
}

#[test]
fn raid1c3() {
    round_trips("raid1c3", Profile::Raid1c3, 3, 105);
}

#[test]
fn raid1c4() {
    round_trips("raid1c4", Profile::Raid1c4, 4, 106);
}

#[test]
fn raid10() {
    round_trips("raid10", Profile::Raid10, 4, 107);
}
