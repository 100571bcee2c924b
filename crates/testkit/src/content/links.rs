//! Hard links, symbolic links and inodes that are neither file nor folder.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;

use super::Content;
use super::write::{file, unless_refused};
use crate::random::Random;

pub(super) fn fill(folder: &Path, random: &mut Random, _: &Content) -> io::Result<()> {
    hard_links(folder, random)?;
    symbolic_links(folder)?;
    special_files(folder)
}

fn hard_links(folder: &Path, random: &mut Random) -> io::Result<()> {
    let original = folder.join("linked");
    file(&original, &random.compressible(5000))?;
    std::fs::create_dir(folder.join("elsewhere"))?;
    for name in ["linked-again", "elsewhere/linked", "elsewhere/linked-again"] {
        std::fs::hard_link(&original, folder.join(name))?;
    }
    std::fs::hard_link(&original, folder.join("linked-for-a-while"))?;
    std::fs::remove_file(folder.join("linked-for-a-while"))?;

    // More names in one folder than fit one INODE_REF item: the rest become INODE_EXTREF items, or
    // are refused without that feature.
    let original = folder.join("linked-often");
    file(&original, b"300 names")?;
    std::fs::create_dir(folder.join("often"))?;
    for number in 0..300 {
        let name = folder.join(format!("often/{number:0>200}"));
        if !unless_refused(rustix::fs::link(&original, &name), &[Errno::MLINK])? {
            break;
        }
    }
    Ok(())
}

fn symbolic_links(folder: &Path) -> io::Result<()> {
    symlink("linked", folder.join("symlink"))?;
    symlink("elsewhere", folder.join("symlink-to-folder"))?;
    symlink("/no/such/place", folder.join("symlink-dangling"))?;
    symlink("symlink-to-itself", folder.join("symlink-to-itself"))?;
    // The longest target is that of a path, or less if it does not fit a leaf.
    for len_bytes in [4095, 3500] {
        let target = "long/".repeat(len_bytes / 5 + 1);
        let made = rustix::fs::symlink(&target[..len_bytes], folder.join("symlink-long"));
        if unless_refused(made, &[Errno::NAMETOOLONG])? {
            break;
        }
    }
    Ok(())
}

fn special_files(folder: &Path) -> io::Result<()> {
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("character-device", FileType::CharacterDevice, makedev(5, 1)),
        ("block-device", FileType::BlockDevice, makedev(4095, 1_048_575)),
    ] {
        mknodat(CWD, folder.join(name), kind, Mode::from_raw_mode(0o640), device)?;
    }
    Ok(())
}
