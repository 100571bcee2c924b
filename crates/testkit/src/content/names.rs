//! Unusual names, nested folders, and entries that came and went.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Content;
use super::write::file;
use crate::random::Random;

pub(super) fn fill(folder: &Path, random: &mut Random, _: &Content) -> io::Result<()> {
    let single = folder.join("single-bytes");
    std::fs::create_dir(&single)?;
    let possible: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    for &byte in possible.iter().filter(|&&byte| byte != b'.') {
        named(&single, &[byte])?;
    }
    named(folder, &possible)?;
    named(folder, &[b'x'; 255])?;
    named(folder, &[0xFF; 255])?;
    named(folder, b"not\xC3\x28utf-8\xA0\xA1")?;
    named(folder, b"...")?;
    named(folder, b" new\nline\ttab ")?;
    named(folder, "brød og smør 🍞".as_bytes())?;
    nested(folder)?;
    come_and_gone(folder, random)
}

fn named(folder: &Path, name: &[u8]) -> io::Result<()> {
    file(&folder.join(OsStr::from_bytes(name)), name).map(drop)
}

fn nested(folder: &Path) -> io::Result<()> {
    let mut path = folder.join("nested");
    for depth in 0..40 {
        path.push(format!("depth-{depth}"));
    }
    std::fs::create_dir_all(&path)?;
    file(&path.join("at-the-bottom"), b"deep").map(drop)
}

/// Gaps in the indexes of a folder, and entries that are renamed within it and moved into it.
fn come_and_gone(folder: &Path, random: &mut Random) -> io::Result<()> {
    let folder = folder.join("come-and-gone");
    std::fs::create_dir(&folder)?;
    for number in 0..60 {
        file(&folder.join(format!("entry-{number}")), &random.compressible(50))?;
    }
    for number in (0..60).step_by(3) {
        std::fs::remove_file(folder.join(format!("entry-{number}")))?;
    }
    for number in (1..60).step_by(6) {
        let from = folder.join(format!("entry-{number}"));
        std::fs::rename(from, folder.join(format!("renamed-{number}")))?;
    }
    std::fs::rename(folder.join("entry-2"), folder.join("entry-5"))?;
    std::fs::create_dir(folder.join("emptied"))?;
    std::fs::rename(folder.join("entry-8"), folder.join("emptied/moved"))?;
    std::fs::rename(folder.join("emptied/moved"), folder.join("moved-back"))
}
