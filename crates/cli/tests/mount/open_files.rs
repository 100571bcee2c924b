//! Open inodes without a name any more, or without one yet: files, and deleted subvolumes, compared
//! with the kernel's.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use larder_testkit::{Content, ImageSpec, KernelImage};
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, OFlags, XattrFlags, fadvise, fallocate, fgetxattr,
    fsetxattr, linkat, mkdirat, open, openat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::support::{Mounted, larder, succeed, wait_until};

/// Makes the kernel drop the data of a file, so that the server is asked again.
fn forget_pages(file: &File) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

#[track_caller]
fn assert_has(file: &File, expected: &[u8]) {
    forget_pages(file);
    let mut content = vec![0xAA; expected.len()];
    file.read_exact_at(&mut content, 0).unwrap();
    assert!(content == expected, "it has other bytes");
}

#[test]
pub(crate) fn files_synced_without_a_name_are_there_once_named() {
    let mut mounted = Mounted::new();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    for (name, len) in [("short", 100), ("long", 3_000_000)] {
        let file: File = open(mounted.path(), flags, 0o640.into()).unwrap().into();
        file.write_all_at(&vec![7; len], 0).unwrap();
        file.sync_all().unwrap();
        assert_has(&file, &vec![7; len]);
        linkat(&file, "", CWD, mounted.join(name), AtFlags::EMPTY_PATH).unwrap();
        file.sync_all().unwrap();
    }
    mounted.unmount();
    mounted.mount(&[]);
    assert_eq!(fs::read(mounted.join("short")).unwrap(), [7; 100]);
    assert_eq!(fs::read(mounted.join("long")).unwrap(), vec![7; 3_000_000]);
    mounted.finish();
}

#[test]
pub(crate) fn unlinked_files_keep_their_data_when_synced() {
    let mounted = Mounted::new();
    let open_new = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(mounted.join(name)).unwrap()
    };
    let (removed, replaced, mapped) =
        (open_new("removed"), open_new("replaced"), open_new("mapped"));
    fs::remove_file(mounted.join("removed")).unwrap();
    fs::write(mounted.join("other"), "other").unwrap();
    fs::rename(mounted.join("other"), mounted.join("replaced")).unwrap();
    for file in [&removed, &replaced] {
        file.write_all_at(&vec![7; 100_000], 0).unwrap();
        file.sync_all().unwrap();
        assert_has(file, &vec![7; 100_000]);
        file.write_all_at(&vec![8; 100_000], 50_000).unwrap();
        succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
        file.sync_data().unwrap();
        assert_has(file, &[vec![7; 50_000], vec![8; 100_000]].concat());
    }
    mapped.set_len(100_000).unwrap();
    fs::remove_file(mounted.join("mapped")).unwrap();
    let write =
        ["mmap -rw 0 100000", "mwrite -S 9 0 100000", "msync -s 0 100000", "munmap", "fsync"];
    let mut program = Command::new("xfs_io");
    program.args(write.iter().flat_map(|command| ["-c", command])).arg("/proc/self/fd/0");
    succeed(program.stdin(mapped.try_clone().unwrap()));
    drop(program);
    assert_has(&mapped, &vec![9; 100_000]);
    drop((removed, replaced, mapped));
    mounted.finish();
}

/// The results of each call on open inodes of a deleted subvolume in `place`.
struct Outcomes {
    all: Vec<(String, String)>,
}

impl Outcomes {
    fn note<T: Debug>(&mut self, what: impl Into<String>, outcome: io::Result<T>) {
        let outcome = match outcome {
            Ok(value) => format!("{value:?}"),
            Err(error) => {
                Errno::from_io_error(&error).map_or(error.to_string(), |errno| errno.to_string())
            }
        };
        self.all.push((what.into(), outcome));
    }

    fn note_errno<T: Debug>(&mut self, what: impl Into<String>, outcome: Result<T, Errno>) {
        self.note(what, outcome.map_err(Into::into));
    }

    fn of_directory(&mut self, name: &str, directory: &File, child: &str) {
        let at = directory.as_fd();
        let mut note = |what: &str, outcome: Result<(), Errno>| {
            self.note_errno(format!("{name}: {what}"), outcome);
        };
        let create = OFlags::CREATE | OFlags::RDWR;
        note("create", openat(at, "new", create, 0o644.into()).map(drop));
        note("mkdir", mkdirat(at, "folder", 0o755.into()));
        note("symlink", symlinkat("x", at, "symlink"));
        note(
            "list",
            rustix::fs::Dir::read_from(at)
                .and_then(|mut dir| dir.try_for_each(|entry| entry.map(drop))),
        );
        note("open", openat(at, child, OFlags::RDONLY, 0.into()).map(drop));
        note("stat of nothing", statat(at, "nothing", AtFlags::empty()).map(drop));
        note("unnamed", openat(at, ".", OFlags::TMPFILE | OFlags::RDWR, 0o600.into()).map(drop));
        note("link", linkat(at, child, at, "link", AtFlags::empty()));
        note("rename", renameat(at, child, at, "renamed"));
        note("rename back", renameat(at, "renamed", at, child));
        note("fsync", rustix::fs::fsync(at));
        note("setxattr", fsetxattr(at, "user.a", b"1", XattrFlags::empty()));
        note("chmod", rustix::fs::fchmod(at, 0o700.into()));
        note("unlink", unlinkat(at, child, AtFlags::empty()));
    }

    fn of_file(&mut self, name: &str, file: &File, place: &Path) {
        let metadata = file.metadata().map(|metadata| (metadata.nlink(), metadata.len()));
        self.note(format!("{name}: metadata"), metadata);
        let read = || {
            forget_pages(file);
            let mut data = vec![0; 40_000];
            file.read_at(&mut data, 0).map(|len| {
                data[..len].chunk_by(u8::eq).map(|run| (run[0], run.len())).collect::<Vec<_>>()
            })
        };
        self.note(format!("{name}: read"), read());
        self.note(format!("{name}: write"), file.write_at(&[b'z'; 5000], 9000));
        self.note(format!("{name}: fsync"), file.sync_all());
        self.note(format!("{name}: read what was written"), read());
        self.note(format!("{name}: truncate"), file.set_len(100));
        self.note_errno(
            format!("{name}: fallocate"),
            fallocate(file, FallocateFlags::empty(), 0, 30_000),
        );
        self.note_errno(
            format!("{name}: setxattr"),
            fsetxattr(file, "user.b", b"2", XattrFlags::empty()),
        );
        let mut value = [0; 4];
        self.note_errno(format!("{name}: getxattr"), fgetxattr(file, "user.b", &mut value));
        self.note(format!("{name}: chmod"), file.set_permissions(Permissions::from_mode(0o600)));
        let out = place.join("out");
        self.note_errno(format!("{name}: link"), linkat(file, "", CWD, &out, AtFlags::EMPTY_PATH));
        let other = File::create_new(&out).unwrap();
        let copied = rustix::fs::copy_file_range(file, Some(&mut 0), &other, Some(&mut 0), 4096);
        self.note_errno(format!("{name}: copy"), copied);
        drop(other);
        fs::remove_file(&out).unwrap();
        self.note(format!("{name}: fdatasync"), file.sync_data());
        self.note(format!("{name}: read at last"), read());
    }
}

fn subvolume(place: &Path, arguments: &[&str]) -> io::Result<()> {
    let output = larder().arg("subvolume").args(arguments).current_dir(place).output()?;
    if output.status.success() { Ok(()) } else { Err(Errno::IO.into()) }
}

/// Deletes a subvolume in `place` while a folder and files of it are open, and uses them.
fn use_deleted(place: &Path) -> Vec<(String, String)> {
    let mut outcomes = Outcomes { all: Vec::new() };
    subvolume(place, &["create", "doomed"]).unwrap();
    let root = place.join("doomed");
    fs::create_dir(root.join("folder")).unwrap();
    fs::write(root.join("f"), vec![b'x'; 10_000]).unwrap();
    fs::write(root.join("folder/g"), vec![b'y'; 10_000]).unwrap();
    let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).unwrap();
    let files = [open(&root.join("f")), open(&root.join("folder/g"))];
    let directories = [File::open(&root).unwrap(), File::open(root.join("folder")).unwrap()];
    subvolume(place, &["delete", "doomed"]).unwrap();
    outcomes.note("metadata of what is deleted", fs::metadata(&root).map(drop));
    // If its space were free, this would be there.
    fs::write(place.join("other"), vec![b'o'; 1 << 20]).unwrap();
    File::open(place.join("other")).unwrap().sync_all().unwrap();
    for (file, name) in files.iter().zip(["f", "g"]) {
        outcomes.of_file(name, file, place);
    }
    outcomes.of_directory("root", &directories[0], "f");
    outcomes.of_directory("folder", &directories[1], "g");
    for (file, name) in files.iter().zip(["f", "g"]) {
        outcomes.of_file(&format!("{name} at last"), file, place);
    }
    let (process, descriptor) = (std::process::id(), directories[0].as_raw_fd());
    let snapshot = format!("/proc/{process}/fd/{descriptor}");
    outcomes.note("snapshot", subvolume(place, &["snapshot", &snapshot, "snapshot"]));
    fs::remove_file(place.join("other")).unwrap();
    outcomes.all
}

#[test]
pub(crate) fn open_inodes_of_a_deleted_subvolume_work_as_on_the_kernels() {
    let mounted = Mounted::new();
    let ours = use_deleted(&mounted.path());
    let image = KernelImage::build(&ImageSpec::new("deleted"), &Content::new(73));
    let kernels = image.mount("");
    let theirs = use_deleted(kernels.path());
    assert_eq!(ours, theirs);
    drop(kernels);
    mounted.finish();
}

#[test]
pub(crate) fn the_room_of_a_deleted_subvolume_comes_back_when_nothing_of_it_is_open() {
    let mounted = Mounted::new();
    let used = || {
        succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
        let found = rustix::fs::statvfs(mounted.path()).unwrap();
        (found.f_blocks - found.f_bfree) * found.f_frsize
    };
    let before = used();
    subvolume(&mounted.path(), &["create", "doomed"]).unwrap();
    mounted.shell(
        "mkdir doomed/folder; for i in 1 2 3 4; do head -c 4M /dev/zero > doomed/folder/$i; done",
    );
    let file = File::open(mounted.join("doomed/folder/1")).unwrap();
    assert!(used() >= before + (16 << 20));
    subvolume(&mounted.path(), &["delete", "doomed"]).unwrap();
    assert!(used() >= before + (16 << 20), "it is in use");
    drop(file);
    wait_until("its room came back", || used() < before + (4 << 20));
    mounted.finish();
}

/// The kernel may still cache an old inode with the same number.
#[test]
pub(crate) fn nothing_shows_in_the_place_of_a_deleted_subvolume() {
    let mounted = Mounted::new();
    for round in 0..5_u8 {
        fs::write(mounted.join("f"), vec![round; 10_000]).unwrap();
        subvolume(&mounted.path(), &["snapshot", ".", "snapshot"]).unwrap();
        let file = File::open(mounted.join("snapshot/f")).unwrap();
        assert_has(&file, &[round; 10_000]);
        assert_eq!(fs::read(mounted.join("snapshot/f")).unwrap(), [round; 10_000]);
        subvolume(&mounted.path(), &["delete", "snapshot"]).unwrap();
        assert_has(&file, &[round; 10_000]);
        fs::write(mounted.join("f"), "between").unwrap();
    }
    mounted.finish();
}
