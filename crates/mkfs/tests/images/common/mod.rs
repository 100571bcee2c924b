//! Sources to copy, and checks of the copies by the kernel.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use larder_format::Profile;
use larder_mkfs::{MkfsOptions, Summary, mkfs};
use larder_testkit::command::{CommandError, run};
use larder_testkit::manifest::{Body, Timestamp};
use larder_testkit::name_hash::colliding_names;
use larder_testkit::{KernelMount, Manifest, Scratch, assert_same, oracle};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, makedev, mknodat};

/// How long a test waits for another.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const MIB: u64 = 1 << 20;

/// A file system made by mkfs, and the files of its devices.
pub(crate) struct Made {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) summary: Summary,
    _scratch: Scratch,
}

impl Made {
    /// Makes a file system on files of these lengths.
    #[track_caller]
    pub(crate) fn new(lens_bytes: &[u64], options: &MkfsOptions) -> Self {
        let scratch = Scratch::new();
        let files: Vec<PathBuf> = (1..)
            .zip(lens_bytes)
            .map(|(number, len)| scratch.sparse_file(&format!("device-{number}"), *len))
            .collect();
        let summary = mkfs(&files, options).unwrap_or_else(|error| panic!("{error}"));
        Self { files, summary, _scratch: scratch }
    }

    /// Checks that btrfs-progs finds no error, in data either.
    #[track_caller]
    pub(crate) fn check(&self) {
        oracle::check(&self.files, true).unwrap_or_else(|error| panic!("{error}"));
    }

    #[track_caller]
    pub(crate) fn mount(&self, options: &str) -> KernelMount {
        // The kernel refuses it while another test has mounted devices with the same UUID.
        let start = Instant::now();
        loop {
            match KernelMount::try_open(&self.files, options) {
                Ok(mount) => return mount,
                Err(error) if start.elapsed() < PATIENCE && is_there(&error) => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => panic!("the kernel does not mount {:?}: {error}", self.files),
            }
        }
    }

    /// Checks that a kernel mount shows the content of `source`.
    #[track_caller]
    pub(crate) fn assert_holds(&self, source: &Path) {
        let mount = self.mount("ro");
        assert_same(&comparable(source), &comparable(mount.path()));
    }

    fn has_profile(&self, which: impl Fn(Profile) -> bool) -> bool {
        self.summary.block_groups.iter().any(|group| which(group.profile))
    }

    /// Makes the kernel change the file system: it writes, takes a snapshot, and moves everything.
    #[track_caller]
    pub(crate) fn let_the_kernel_work(&self) {
        let mount = self.mount("noatime");
        let root = mount.path();
        let before = comparable(root);
        run("btrfs", [Path::new("subvolume"), Path::new("snapshot"), root, &root.join("snap")])
            .unwrap_or_else(|error| panic!("{error}"));
        fs::create_dir(root.join("new")).unwrap();
        for number in 0..200_u32 {
            let content = number.to_le_bytes().repeat(number as usize * 20);
            fs::write(root.join(format!("new/file-{number}")), content).unwrap();
        }
        mount.sync();
        // The kernel makes chunks of a tenth of the devices' sum. With more than two copies, one of
        // them is a large part of each device, and balancing runs out of space on any such file
        // system.
        if !self.has_profile(|profile| profile.copies() > 2) {
            run("btrfs", ["balance", "start", "--full-balance", root.to_str().unwrap()])
                .unwrap_or_else(|error| panic!("{error}"));
        }
        mount.sync();
        let mut snapshot = comparable(&root.join("snap"));
        // A snapshot shows empty folders where it has subvolumes.
        snapshot.entries.retain(|path, _| before.entries.contains_key(path));
        let mut expected = before;
        expected.entries.retain(|path, _| snapshot.entries.contains_key(path));
        assert_same(&expected, &snapshot);
        drop(mount);
        // btrfs-progs 6.2 misreads what the kernel writes to two devices with RAID5.
        let data = !self.has_profile(|profile| profile == Profile::Raid5);
        oracle::check(&self.files, data).unwrap_or_else(|error| panic!("{error}"));
    }

    /// All of the above.
    #[track_caller]
    pub(crate) fn prove(&self, source: &Path) {
        self.check();
        self.assert_holds(source);
        self.let_the_kernel_work();
    }

    /// `btrfs inspect-internal dump-tree` of one tree.
    #[track_caller]
    pub(crate) fn dump(&self, tree: &str) -> String {
        oracle::dump_tree(&self.files, &["-t", tree]).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn is_there(error: &CommandError) -> bool {
    error.to_string().contains("File exists")
}

/// The properties that a copy shares with its source.
#[track_caller]
pub(crate) fn comparable(root: &Path) -> Manifest {
    let mut manifest = Manifest::of_tree(root);
    for entry in manifest.entries.values_mut() {
        (entry.inode, entry.subvolume, entry.flags) = (0, 0, None);
        // Reading the source changes its times of last access.
        (entry.atime, entry.otime) = (Timestamp::default(), Timestamp::default());
        entry.allocated_bytes = 0;
        if let Body::Folder { names } = &mut entry.body {
            // Each file system has its own values for these.
            (entry.size_bytes, entry.nlink) = (0, 0);
            names.sort_unstable();
        }
    }
    manifest
}

pub(crate) fn options(root_dir: &Path) -> MkfsOptions {
    MkfsOptions { root_dir: Some(root_dir.to_owned()), ..MkfsOptions::default() }
}

/// A directory with files of every kind.
pub(crate) struct Source(Scratch);

impl Source {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        let root = scratch.path();
        data(&root.join("data"));
        names(&root.join("names"));
        links(&root.join("links"));
        attributes(&root.join("attributes"));
        specials(&root.join("specials"));
        for path in ["sub/inner/deep", "sub/ro"] {
            fs::create_dir_all(root.join(path)).unwrap();
            fs::write(root.join(path).join("file"), path.repeat(700)).unwrap();
        }
        fs::set_permissions(root, fs::Permissions::from_mode(0o1751)).unwrap();
        chown(root, Some(77), Some(88)).unwrap();
        Self(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

fn data(folder: &Path) {
    fs::create_dir(folder).unwrap();
    for len in [0, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 65_536, 131_071, 131_073, 300_000] {
        fs::write(folder.join(format!("text-{len}")), text(len)).unwrap();
        fs::write(folder.join(format!("noise-{len}")), noise(len)).unwrap();
    }
    let large = [noise(1_500_000), text(2_000_000), noise(700_001)].concat();
    fs::write(folder.join("large"), large).unwrap();
    fs::write(folder.join("just-a-segment"), noise(1 << 20)).unwrap();
    let sparse = |name: &str, len: u64, pieces: &[(u64, usize)]| {
        let file = File::create(folder.join(name)).unwrap();
        for (offset, piece) in pieces {
            file.write_all_at(&text(*piece), *offset).unwrap();
        }
        file.set_len(len).unwrap();
    };
    sparse("only-hole", 1 << 30, &[]);
    sparse("small-hole", 1500, &[]);
    sparse("hole-first", 1 << 20, &[((1 << 20) - 10, 10)]);
    sparse("hole-last", 1 << 20, &[(0, 10)]);
    sparse("far-apart", (1 << 40) + 3, &[(0, 5000), (8 << 20, 3 << 20), (1 << 40, 3)]);
}

fn names(folder: &Path) {
    fs::create_dir(folder).unwrap();
    for name in colliding_names(b"collision-", 0x1234_5678, 10) {
        let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&name[..]);
        fs::write(folder.join(name), "same hash").unwrap();
    }
    for name in ["å".repeat(127), "x".repeat(255), " \n\t\\".into(), "-".into()] {
        fs::write(folder.join(name), "odd").unwrap();
    }
}

fn links(folder: &Path) {
    fs::create_dir_all(folder.join("often")).unwrap();
    fs::write(folder.join("file"), text(10_000)).unwrap();
    fs::hard_link(folder.join("file"), folder.join("again")).unwrap();
    fs::hard_link(folder.join("file"), folder.join("often/elsewhere")).unwrap();
    fs::write(folder.join("many"), "many names").unwrap();
    for number in 0..400 {
        // More than fit into an inode reference item of the largest leaf.
        let name = folder.join(format!("often/{number:0>200}"));
        fs::hard_link(folder.join("many"), name).unwrap();
    }
    symlink("file", folder.join("symlink")).unwrap();
    symlink("/no/such/".repeat(400), folder.join("long-symlink")).unwrap();
    fs::hard_link(folder.join("symlink"), folder.join("symlink-again")).unwrap();
}

fn attributes(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    let file = folder.join("file");
    fs::write(&file, "attributes").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
    chown(&file, Some(1000), Some(100_000)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6754)).unwrap();
    set(&file, "user.empty", b"");
    set(&file, "user.binary", &[0, 1, 255]);
    set(&file, "trusted.secret", b"only root");
    let capability: Vec<u8> =
        [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    set(&file, "security.capability", &capability);
    for name in colliding_names(b"user.same-hash-", 0xABCD, 60) {
        // Attribute names are any bytes except zero, like those of files.
        lsetxattr(&file, &name[..], b"value", XattrFlags::empty()).unwrap();
    }
    let acl: Vec<u8> = [
        &2_u32.to_le_bytes()[..],
        &acl_entry(0x01, 6, u32::MAX),
        &acl_entry(0x02, 4, 1234),
        &acl_entry(0x04, 4, u32::MAX),
        &acl_entry(0x10, 4, u32::MAX),
        &acl_entry(0x20, 0, u32::MAX),
    ]
    .concat();
    set(&file, "system.posix_acl_access", &acl);
    set(folder, "system.posix_acl_default", &acl);
    symlink("file", folder.join("symlink")).unwrap();
    set(&folder.join("symlink"), "trusted.of-a-symlink", b"yes");
    let times = fs::FileTimes::new()
        .set_accessed(std::time::UNIX_EPOCH - std::time::Duration::new(5, 5))
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789));
    File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
}

fn acl_entry(tag: u16, permissions: u16, id: u32) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
}

fn specials(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let make = |name: &str, file_type, device| {
        mknodat(CWD, folder.join(name), file_type, Mode::from(0o640), device).unwrap();
    };
    make("pipe", FileType::Fifo, 0);
    make("socket", FileType::Socket, 0);
    make("character", FileType::CharacterDevice, makedev(1, 3));
    make("block", FileType::BlockDevice, makedev(259, 1_048_575));
}

pub(crate) fn text(len: usize) -> Vec<u8> {
    let lines = (0_u64..).flat_map(|n| format!("line {n} of many lines\n").into_bytes());
    lines.take(len).collect()
}

/// Bytes that no algorithm compresses.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = len as u64;
    let words = std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    });
    words.flat_map(u64::to_le_bytes).take(len).collect()
}
