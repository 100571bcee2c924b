//! A folder of many entries, some with colliding name hashes, and a file of many extents.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;

use super::Content;
use super::write::{create, file, unless_refused};
use crate::name_hash::colliding_names;
use crate::random::Random;

const SECTOR_BYTES: u64 = 4096;

pub(super) fn fill(folder: &Path, random: &mut Random, content: &Content) -> io::Result<()> {
    let entries = folder.join("entries");
    std::fs::create_dir(&entries)?;
    numbered(&entries, random, content)?;
    colliding(&entries, random, content)?;
    extents(folder, random, content)
}

fn numbered(folder: &Path, random: &mut Random, content: &Content) -> io::Result<()> {
    for number in 0..content.directory_entries {
        let path = folder.join(format!("entry-{number}"));
        if number % 16 == 0 {
            file(&path, &random.compressible(40))?;
        } else {
            create(&path)?;
        }
    }
    Ok(())
}

/// Empty folders, some names of each of four hashes. All names of one hash are in one DIR_ITEM, so
/// there are no more than a leaf can hold.
fn colliding(folder: &Path, random: &mut Random, content: &Content) -> io::Result<()> {
    for first_hash in [0, 0x8000_0000, u32::MAX, random.next() as u32] {
        for name in colliding_names(b"same-hash-", first_hash, content.colliding_names as usize) {
            let path = folder.join(OsStr::from_bytes(&name));
            let made = rustix::fs::mkdir(&path, 0o755.into());
            if !unless_refused(made, &[Errno::OVERFLOW])? {
                break;
            }
        }
    }
    Ok(())
}

/// Every other sector first, then some of those between: no two extents can merge.
fn extents(folder: &Path, random: &mut Random, content: &Content) -> io::Result<()> {
    let target = create(&folder.join("extents"))?;
    let first_round = u64::from(content.file_extents) * 3 / 4;
    for number in 0..first_round {
        let sector = random.incompressible(SECTOR_BYTES as usize);
        target.write_all_at(&sector, 2 * number * SECTOR_BYTES)?;
    }
    target.sync_all()?;
    for number in 0..u64::from(content.file_extents) - first_round {
        let sector = random.compressible(SECTOR_BYTES as usize);
        target.write_all_at(&sector, (2 * number + 1) * SECTOR_BYTES)?;
    }
    target.sync_all()
}
