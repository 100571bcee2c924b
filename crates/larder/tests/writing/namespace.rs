//! Calls to the kernel and to this library on two identical images: both refuse with the same error
//! or neither does, and the results are the same.

use larder::{Filesystem, SnapshotKind, XattrMode};
use larder_testkit::{
    Content, ImageSpec, KernelImage, KernelMount, Manifest, Scale, acl, assert_same,
};
use rustix::fs::RenameFlags;

use super::actors::{Actor, Done, Kernel, Larder};
use super::{check, open, support};

/// Makes both run `act` on identical images, and compares.
fn same(name: &str, act: impl Fn(&dyn Actor) -> Vec<Done>) {
    let spec = ImageSpec::new(name);
    let images: [KernelImage; 2] =
        std::array::from_fn(|_| KernelImage::build(&spec, &Content::new(41).scale(Scale::Small)));
    let theirs = {
        let mount = images[0].mount("");
        act(&Kernel(mount.path()))
    };
    let fs = open(&images[1]);
    let ours = act(&Larder(fs.subvolume("/").unwrap()));
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "call {number}");
    }
    assert_eq!(ours.len(), theirs.len());
    finish(fs, &images);
}

fn finish(fs: Filesystem, images: &[KernelImage; 2]) {
    fs.sync().unwrap();
    let mut seen = support::manifest(&fs);
    drop(fs);
    check(&images[1], "all");
    let mount = |image: &KernelImage| -> Manifest {
        let mount: KernelMount = image.mount("ro,noatime");
        without_times(Manifest::of_tree(mount.path()))
    };
    let theirs = mount(&images[0]);
    assert_same(&theirs, &mount(&images[1]));
    seen = without_times(seen);
    assert_same(&theirs, &seen);
}

fn without_times(mut manifest: Manifest) -> Manifest {
    for entry in manifest.entries.values_mut() {
        (entry.atime, entry.mtime, entry.ctime, entry.otime) = Default::default();
    }
    manifest
}

pub(crate) const ACCESS: &str = "system.posix_acl_access";
pub(crate) const DEFAULT: &str = "system.posix_acl_default";
pub(crate) const COMPRESSION: &str = "btrfs.compression";
const NONE: u32 = u32::MAX;
pub(crate) const USER: [(u16, u16, u32); 5] =
    [(1, 7, NONE), (2, 6, 1000), (4, 5, NONE), (0x10, 6, NONE), (0x20, 4, NONE)];
const PLAIN: [(u16, u16, u32); 3] = [(1, 6, NONE), (4, 5, NONE), (0x20, 1, NONE)];
const ANY: XattrMode = XattrMode::Any;
const FIFO: u32 = 0o010_000;
const REGULAR: u32 = 0o100_000;

#[test]
fn acls_change_modes_and_modes_change_acls() {
    same("acls", |by| {
        let mut done = vec![
            by.mkdir("d", 0o755),
            by.chmod("d", 0o2755),
            by.mknod("file", REGULAR | 0o640, (0, 0)),
            by.symlink("file", "link"),
            by.mknod("pipe", FIFO | 0o666, (0, 0)),
            by.set_xattr("file", ACCESS, &acl(&USER), ANY),
            by.set_xattr("pipe", ACCESS, &acl(&USER), ANY),
            by.set_xattr("link", ACCESS, &acl(&USER), ANY),
            by.set_xattr("file", DEFAULT, &acl(&USER), ANY),
            by.set_xattr("file", DEFAULT, b"", ANY),
            by.chmod("file", 0o4751),
            by.set_xattr("pipe", ACCESS, &acl(&PLAIN), XattrMode::Create),
            by.set_xattr("d", DEFAULT, &acl(&USER), XattrMode::Replace),
            by.set_xattr("d", ACCESS, &acl(&USER), ANY),
            by.remove_xattr("d", ACCESS),
            by.remove_xattr("d", ACCESS),
            by.chown("d", 1000, 2000),
        ];
        for number in 0..USER.len() {
            let mut bad = USER;
            bad[number].1 = 8;
            done.push(by.set_xattr("file", ACCESS, &acl(&bad), ANY));
            bad = USER;
            bad[number].2 = 7;
            done.push(by.set_xattr(&format!("file-{number}"), ACCESS, &acl(&bad), ANY));
            bad.swap(number, (number + 1) % USER.len());
            done.push(by.set_xattr("file", ACCESS, &acl(&bad), ANY));
            let mut short = USER.to_vec();
            short.remove(number);
            done.push(by.set_xattr("file", ACCESS, &acl(&short), ANY));
        }
        done.push(by.set_xattr("file", ACCESS, &acl(&USER)[..20], ANY));
        done.push(by.set_xattr("file", ACCESS, &[3, 0, 0, 0], ANY));
        done.push(by.set_xattr("file", ACCESS, &[2, 0, 0], ANY));
        done
    });
}

#[test]
fn directories_pass_acls_groups_flags_and_properties_on() {
    same("inheriting", |by| {
        let mut done = vec![
            by.mkdir("acl", 0o755),
            by.set_xattr("acl", DEFAULT, &acl(&USER), ANY),
            by.mkdir("plain", 0o755),
            by.chown("plain", 7, 8),
            by.chmod("plain", 0o2755),
            by.set_xattr("plain", DEFAULT, &acl(&PLAIN), ANY),
            by.mkdir("compressed", 0o755),
            by.set_xattr("compressed", COMPRESSION, b"zstd:7", ANY),
            by.mkdir("never", 0o755),
            by.set_xattr("never", COMPRESSION, b"none", ANY),
            by.mkdir("in-place", 0o755),
            by.set_flags("in-place", 0x80_0000),
            by.mkdir("setgid", 0o755),
            by.chown("setgid", 1, 2),
            by.chmod("setgid", 0o2775),
        ];
        // A subvolume inherits other things from the root around it than from its directory.
        done.extend([
            by.subvolume("around"),
            by.mkdir("around/folder", 0o755),
            by.set_xattr("around", COMPRESSION, b"lzo", ANY),
            by.subvolume("around/folder/within"),
        ]);
        for folder in ["acl", "plain", "compressed", "never", "in-place", "setgid"] {
            let path = |name: &str| format!("{folder}/{name}");
            done.extend([
                by.mknod(&path("file"), REGULAR | 0o666, (0, 0)),
                by.mknod(&path("secret"), REGULAR | 0o600, (0, 0)),
                by.mknod(&path("run"), REGULAR | 0o777, (0, 0)),
                by.mkdir(&path("folder"), 0o777),
                by.mknod(&path("folder/below"), REGULAR | 0o666, (0, 0)),
                by.mknod(&path("device"), 0o060_660, (8, 300)),
                by.symlink("file", &path("link")),
                by.unnamed(folder, 0o666, Some(&path("named"))),
                by.unnamed(folder, 0o666, None),
                by.write(&path("written"), &[7; 5000]),
                by.subvolume(&path("subvolume")),
                by.mknod(&path("subvolume/file"), REGULAR | 0o666, (0, 0)),
                by.rename(&path("file"), &path("moved"), RenameFlags::WHITEOUT),
            ]);
        }
        done
    });
}

#[test]
fn flags_and_the_property_go_together() {
    same("flags", |by| {
        let mut done = vec![
            by.write("filled", &[1; 9000]),
            by.mknod("empty", REGULAR | 0o644, (0, 0)),
            by.mkdir("folder", 0o755),
            by.mknod("pipe", FIFO | 0o644, (0, 0)),
            by.set_xattr("pipe", COMPRESSION, b"zstd", ANY),
            by.remove_xattr("pipe", COMPRESSION),
        ];
        // Compressed, not compressed, copied in place, those together, synchronous directory,
        // unknown.
        let flags =
            [0x4, 0x400, 0x80_0000, 0x404, 0x80_0004, 0x1_0080, 0x8, 0x40, 0x1, 0x10_0000, 0];
        for path in ["filled", "empty", "folder"] {
            done.extend(flags.map(|flags| by.set_flags(path, flags)));
            for value in ["zstd", "zlib:9", "lzo", "no", "zstd-and-more", "bogus", "", ""] {
                done.push(by.set_xattr(path, COMPRESSION, value.as_bytes(), ANY));
            }
            done.extend([
                by.remove_xattr(path, COMPRESSION),
                by.set_xattr(path, COMPRESSION, b"zstd", XattrMode::Replace),
                by.set_xattr(path, COMPRESSION, b"zstd", XattrMode::Create),
                by.set_flags(path, 0x4 | 0x80),
                by.set_flags(path, 0x80_0000),
                by.set_xattr(path, COMPRESSION, b"lzo", ANY),
            ]);
        }
        done.extend([
            by.set_flags("filled", 0x20),
            by.chmod("filled", 0o600),
            by.unlink("filled"),
            by.link("filled", "other"),
            by.rename("filled", "other", RenameFlags::empty()),
            by.set_flags("folder", 0x10),
            by.mkdir("folder/new", 0o755),
            by.unnamed("folder", 0o644, None),
            by.rmdir("folder"),
            by.set_xattr("folder", "user.name", b"value", ANY),
        ]);
        done
    });
}

#[test]
fn owners_change_and_privileges_go() {
    const CAPABILITIES: [u8; 20] = [0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    same("owners", |by| {
        let mut done = vec![by.mkdir("folder", 0o755), by.chmod("folder", 0o6755)];
        for mode in [0o6755, 0o2745, 0o4711, 0o755] {
            let path = format!("file-{mode:o}");
            done.extend([
                by.mknod(&path, REGULAR | 0o644, (0, 0)),
                by.chmod(&path, mode),
                by.set_xattr(&path, "security.capability", &CAPABILITIES, ANY),
                by.chown(&path, 5, 6),
            ]);
        }
        done.push(by.chown("folder", 5, 6));
        done
    });
}

#[test]
fn a_directory_in_place_of_a_subvolume_is_replaced() {
    const PLAIN: RenameFlags = RenameFlags::empty();
    same("stand-ins", |by| {
        let mut done = vec![by.subvolume("a")];
        for nested in ["one", "two", "three", "four", "five", "six"] {
            done.push(by.subvolume(&format!("a/{nested}")));
        }
        done.extend([
            by.snapshot("a", "s", SnapshotKind::Writable),
            by.mkdir("s/folder", 0o755),
            by.write("s/folder/file", b"kept"),
            by.mkdir("s/other", 0o755),
            by.write("s/plain", b"plain"),
            by.subvolume("s/real"),
            by.rename("s/plain", "s/one", PLAIN),
            by.rename("s/one", "s/folder", PLAIN),
            by.rename("s/one", "s/new", PLAIN),
            by.rename("s/other", "s/one", RenameFlags::NOREPLACE),
            by.rename("s/folder", "s/one", PLAIN),
            by.rename("s/real", "s/two", PLAIN),
            by.rename("s/other", "s/three", RenameFlags::WHITEOUT),
            by.rename("s/one", "s/four", PLAIN),
            by.rename("s/four", "s/two", PLAIN),
            by.mkdir("top", 0o755),
            by.rename("top", "s/five", PLAIN),
            by.write("s/four/file", b"still there"),
            by.rmdir("s/six"),
        ]);
        done
    });
}

#[test]
fn renames_leave_whiteouts_and_move_subvolumes() {
    const PLAIN: RenameFlags = RenameFlags::empty();
    const EXCHANGE: RenameFlags = RenameFlags::EXCHANGE;
    const WHITEOUT: RenameFlags = RenameFlags::WHITEOUT;
    const NOREPLACE: RenameFlags = RenameFlags::NOREPLACE;
    same("renames", |by| {
        vec![
            by.mkdir("d", 0o755),
            by.mkdir("e", 0o755),
            by.write("d/one", b"one"),
            by.write("e/two", b"two"),
            by.rename("d/one", "e/two", WHITEOUT | NOREPLACE),
            by.rename("d/one", "e/three", WHITEOUT | NOREPLACE),
            by.rename("e/two", "e/three", WHITEOUT),
            by.rename("d/one", "e/two", PLAIN),
            by.rename("e", "d/e", WHITEOUT),
            by.subvolume("a"),
            by.subvolume("b"),
            by.write("a/file", b"in a"),
            by.write("b/file", b"in b"),
            by.rename("a", "d/a", PLAIN),
            by.rename("d/a", "b/a", PLAIN),
            by.rename("b/a/file", "b/other", PLAIN),
            by.rename("b", "b/a/b", PLAIN),
            by.rename("b", "d/b", WHITEOUT),
            by.mkdir("empty", 0o755),
            by.mkdir("full", 0o755),
            by.mkdir("full/x", 0o755),
            by.rename("d/b/a", "full", PLAIN),
            by.rename("d/b/a", "empty", PLAIN),
            by.rename("full", "empty", PLAIN),
            by.rename("d/b", "empty", PLAIN),
            by.rename("d/b", "empty", EXCHANGE),
            by.rename("d/b", "full", EXCHANGE),
            by.rename("d/e/three", "full", EXCHANGE),
            by.rename("full", "d/b/new", PLAIN),
            by.rename("d/b/file", "full/moved", NOREPLACE),
            by.snapshot("empty", "read-only", SnapshotKind::ReadOnly),
            by.rename("read-only", "renamed", PLAIN),
            by.rename("renamed", "d/renamed", PLAIN),
            by.rename("renamed", "d/b", EXCHANGE),
            by.rename("renamed/file", "renamed/other", PLAIN),
            by.rename("d", "empty", PLAIN),
            by.rename("missing", "empty", PLAIN),
        ]
    });
}
