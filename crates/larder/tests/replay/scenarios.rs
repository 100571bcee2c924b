//! What a program may have done when the power went.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// A state that is committed, and what happens to it before the power cut.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) before: fn(&Path) -> io::Result<()>,
    pub(crate) work: fn(&Path) -> io::Result<()>,
}

#[allow(clippy::unnecessary_wraps, reason = "it stands for work that may fail")]
fn nothing(_: &Path) -> io::Result<()> {
    Ok(())
}

fn fsync(path: impl AsRef<Path>) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn write(path: impl AsRef<Path>, at: u64, byte: u8, len_bytes: usize) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.write_all_at(&vec![byte; len_bytes], at)?;
    Ok(file)
}

fn synced(path: impl AsRef<Path>, at: u64, byte: u8, len_bytes: usize) -> io::Result<()> {
    write(path, at, byte, len_bytes)?.sync_all()
}

fn fallocate(
    path: impl AsRef<Path>,
    mode: rustix::fs::FallocateFlags,
    at: u64,
    len: u64,
) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    rustix::fs::fallocate(&file, mode, at, len)?;
    file.sync_all()
}

fn set_xattr(path: impl AsRef<Path>, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path.as_ref(), name, value, rustix::fs::XattrFlags::empty())?)
}

/// A few files with some data each.
fn files(root: &Path) -> io::Result<()> {
    for name in ["a", "b", "c"] {
        write(root.join(name), 0, name.as_bytes()[0], 40_000)?;
    }
    Ok(())
}

/// Files in folders, one of several names, with attributes.
fn tree(root: &Path) -> io::Result<()> {
    files(root)?;
    for name in ["x", "y", "x/deep"] {
        fs::create_dir(root.join(name))?;
        files(&root.join(name))?;
    }
    fs::hard_link(root.join("a"), root.join("a2"))?;
    fs::hard_link(root.join("a"), root.join("x/a3"))?;
    for number in 0..5 {
        set_xattr(root.join("b"), &format!("user.{number}"), &[number; 100])?;
        set_xattr(root.join("x"), &format!("user.{number}"), &[number; 100])?;
    }
    Ok(())
}

fn sparse(root: &Path) -> io::Result<()> {
    for number in 0..50 {
        write(root.join("sparse"), number * 20_000, number as u8, 8_000)?;
    }
    write(root.join("long"), 0, 1, 3_000_000)?;
    write(root.join("short"), 0, 1, 100)?;
    Ok(())
}

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "new-file",
        before: nothing,
        work: |root| synced(root.join("new"), 0, 1, 100_000),
    },
    Scenario {
        name: "new-inline-file",
        before: nothing,
        work: |root| synced(root.join("new"), 0, 1, 100),
    },
    Scenario {
        name: "new-file-in-new-folders",
        before: nothing,
        work: |root| {
            fs::create_dir_all(root.join("p/q/r"))?;
            synced(root.join("p/q/r/new"), 0, 1, 10_000)
        },
    },
    Scenario {
        name: "overwritten",
        before: files,
        work: |root| {
            synced(root.join("a"), 5_000, 9, 10_000)?;
            write(root.join("b"), 0, 9, 10_000)?;
            synced(root.join("a"), 30_000, 8, 100_000)
        },
    },
    Scenario {
        name: "truncated",
        before: files,
        work: |root| {
            for (name, len_bytes) in [("a", 10_001), ("b", 0), ("c", 1_000_000)] {
                let file = OpenOptions::new().write(true).open(root.join(name))?;
                file.set_len(len_bytes)?;
                file.sync_all()?;
            }
            Ok(())
        },
    },
    Scenario {
        name: "truncated-and-written",
        before: files,
        work: |root| {
            let file = OpenOptions::new().write(true).open(root.join("a"))?;
            file.set_len(4096)?;
            file.write_all_at(&[7; 5000], 20_000)?;
            file.sync_all()?;
            file.set_len(22_222)?;
            file.sync_data()
        },
    },
    Scenario {
        name: "sparse-changes",
        before: sparse,
        work: |root| {
            synced(root.join("sparse"), 100_000, 77, 50_000)?;
            synced(root.join("sparse"), 2_000_000, 78, 5_000)?;
            fallocate(
                root.join("long"),
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
                100_000,
                1_000_000,
            )?;
            synced(root.join("short"), 10_000, 2, 10)
        },
    },
    Scenario {
        name: "preallocated",
        before: files,
        work: |root| {
            let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
            fallocate(root.join("a"), keep, 40_000, 1_000_000)?;
            fallocate(root.join("b"), rustix::fs::FallocateFlags::empty(), 0, 500_000)?;
            synced(root.join("b"), 100_000, 5, 30_000)?;
            write(root.join("new"), 0, 1, 10)?;
            fallocate(root.join("new"), keep, 0, 300_000)
        },
    },
    Scenario {
        name: "linked",
        before: files,
        work: |root| {
            fs::hard_link(root.join("a"), root.join("d"))?;
            fsync(root.join("a"))?;
            fs::hard_link(root.join("b"), root.join("e"))?;
            fs::hard_link(root.join("b"), root.join("f"))?;
            fs::remove_file(root.join("e"))?;
            fsync(root.join("b"))
        },
    },
    Scenario {
        name: "many-links",
        before: |root| {
            files(root)?;
            for number in 0..500 {
                fs::hard_link(
                    root.join("a"),
                    root.join(format!("a-long-enough-name-{number:05}")),
                )?;
            }
            Ok(())
        },
        work: |root| {
            for number in 400..800 {
                let name = root.join(format!("a-long-enough-name-{number:05}"));
                if number < 500 {
                    fs::remove_file(name)?;
                } else {
                    fs::hard_link(root.join("a"), name)?;
                }
            }
            fsync(root.join("a"))?;
            fsync(root)
        },
    },
    Scenario {
        name: "unlinked-and-folder-synced",
        before: tree,
        work: |root| {
            fs::remove_file(root.join("c"))?;
            fs::remove_file(root.join("a2"))?;
            fs::remove_file(root.join("x/b"))?;
            fs::remove_dir_all(root.join("x/deep"))?;
            fsync(root)?;
            fsync(root.join("x"))
        },
    },
    Scenario {
        name: "unlinked-one-of-several",
        before: tree,
        work: |root| {
            fs::remove_file(root.join("x/a3"))?;
            fsync(root.join("a"))
        },
    },
    Scenario {
        name: "renamed",
        before: tree,
        work: |root| {
            fs::rename(root.join("a"), root.join("z"))?;
            fsync(root.join("z"))?;
            fs::rename(root.join("b"), root.join("y/moved"))?;
            fsync(root.join("y/moved"))
        },
    },
    Scenario {
        name: "renamed-after-sync",
        before: tree,
        work: |root| {
            synced(root.join("a"), 100, 3, 5_000)?;
            fs::rename(root.join("a"), root.join("z"))?;
            synced(root.join("new"), 0, 3, 5_000)?;
            fs::rename(root.join("new"), root.join("newer"))?;
            synced(root.join("other"), 0, 4, 5_000)
        },
    },
    Scenario {
        name: "replaced",
        before: tree,
        work: |root| {
            synced(root.join("a.tmp"), 0, 1, 60_000)?;
            fs::rename(root.join("a.tmp"), root.join("a"))?;
            fsync(root)?;
            synced(root.join("b.tmp"), 0, 1, 600)?;
            fs::rename(root.join("b.tmp"), root.join("b"))?;
            fsync(root.join("b"))
        },
    },
    Scenario {
        name: "name-taken-by-another",
        before: tree,
        work: |root| {
            fs::rename(root.join("c"), root.join("c-old"))?;
            synced(root.join("c"), 0, 9, 9_000)?;
            fs::remove_file(root.join("y/c"))?;
            synced(root.join("y/c"), 0, 9, 9_000)
        },
    },
    Scenario {
        name: "exchanged",
        before: tree,
        work: |root| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            let root_fd = File::open(root)?;
            rustix::fs::renameat_with(&root_fd, "b", &root_fd, "c", flags)?;
            fsync(root.join("b"))?;
            fsync(root)
        },
    },
    Scenario {
        name: "folder-renamed",
        before: tree,
        work: |root| {
            fs::rename(root.join("x"), root.join("w"))?;
            synced(root.join("w/new"), 0, 1, 1_000)?;
            fsync(root.join("w"))?;
            fs::rename(root.join("w/deep"), root.join("y/deep"))?;
            fsync(root.join("y/deep"))
        },
    },
    Scenario {
        name: "folder-of-many",
        before: |root| {
            for number in 0..600 {
                File::create(root.join(format!("file-{number}")))?;
            }
            Ok(())
        },
        work: |root| {
            for number in (0..600).step_by(7) {
                fs::remove_file(root.join(format!("file-{number}")))?;
            }
            for number in 0..40 {
                write(root.join(format!("new-{number}")), 0, 1, 100)?;
                fs::create_dir(root.join(format!("folder-{number}")))?;
            }
            fsync(root)?;
            for number in 300..320 {
                let _ = fs::remove_file(root.join(format!("file-{number}")));
            }
            fsync(root)
        },
    },
    Scenario {
        name: "attributes",
        before: tree,
        work: |root| {
            for name in ["b", "x"] {
                rustix::fs::removexattr(root.join(name), "user.1")?;
                set_xattr(root.join(name), "user.2", b"changed")?;
                set_xattr(root.join(name), "user.9", &[9; 1000])?;
                fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o711))?;
                fsync(root.join(name))?;
            }
            rustix::fs::removexattr(root.join("b"), "user.3")?;
            fsync(root.join("b"))
        },
    },
    Scenario {
        name: "all-kinds",
        before: nothing,
        work: |root| {
            symlink("some/where", root.join("link"))?;
            fs::create_dir(root.join("folder"))?;
            fs::create_dir(root.join("folder/inner"))?;
            let fifo = rustix::fs::FileType::Fifo;
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), fifo, mode, 0)?;
            write(root.join("folder/inner/file"), 0, 1, 5000)?;
            fsync(root)?;
            fsync(root.join("folder"))
        },
    },
    Scenario {
        name: "folder-replaced-by-file",
        before: tree,
        work: |root| {
            fs::remove_dir_all(root.join("y"))?;
            synced(root.join("y"), 0, 1, 5000)?;
            fs::remove_file(root.join("c"))?;
            fs::create_dir(root.join("c"))?;
            fsync(root.join("c"))
        },
    },
    Scenario {
        name: "made-synced-and-removed",
        before: tree,
        work: |root| {
            for number in 0..20 {
                let name = root.join(format!("journal-{}", number % 2));
                synced(&name, 0, number, 10_000)?;
                synced(root.join("a"), u64::from(number) * 4096, number, 4096)?;
                fs::remove_file(name)?;
            }
            Ok(())
        },
    },
    Scenario {
        name: "open-without-a-name",
        before: files,
        work: |root| {
            let file = OpenOptions::new().write(true).open(root.join("a"))?;
            fs::remove_file(root.join("a"))?;
            file.write_all_at(&[1; 9000], 0)?;
            file.sync_all()?;
            synced(root.join("b"), 0, 1, 1)?;
            Ok(())
        },
    },
    Scenario {
        name: "reflinked",
        before: files,
        work: |root| {
            let (from, to) = (File::open(root.join("a"))?, File::create(root.join("clone"))?);
            rustix::fs::ioctl_ficlone(&to, &from)?;
            to.sync_all()?;
            let part = OpenOptions::new().write(true).open(root.join("b"))?;
            let mut at = (4096, 8192);
            rustix::fs::copy_file_range(&from, Some(&mut at.0), &part, Some(&mut at.1), 16384)?;
            part.sync_all()
        },
    },
];
