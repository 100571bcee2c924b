//! Extended attributes, access control lists and properties.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{XattrFlags, lsetxattr};
use rustix::io::Errno;

use super::Content;
use super::write::{file, unless_refused};
use crate::acl;
use crate::random::Random;

pub(super) fn fill(folder: &Path, random: &mut Random, _: &Content) -> io::Result<()> {
    let path = folder.join("namespaces");
    file(&path, b"")?;
    set(&path, "user.empty", b"")?;
    set(&path, "user.binary", &[0, 1, 2, 0xFF, 0])?;
    set(&path, "user.brød", "smør".as_bytes())?;
    set(&path, "trusted.larder", b"only root sees this")?;
    set(&path, "security.larder", b"a label")?;
    set(&path, "security.capability", &capability_net_bind_service())?;

    let path = folder.join("many");
    std::fs::create_dir(&path)?;
    for number in 0..100 {
        set(&path, &format!("user.number-{number}"), &random.incompressible(number))?;
    }
    let path = folder.join("overwritten");
    file(&path, b"")?;
    set(&path, "user.changed", &random.incompressible(1000))?;
    set(&path, "user.changed", b"shorter")?;

    let path = folder.join("symlink");
    symlink("many", &path)?;
    set(&path, "trusted.on-a-symlink", b"yes")?;
    large(folder, random)?;
    access_control_lists(folder)?;
    compression_properties(folder, random)
}

fn set(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(lsetxattr(path, name, value, XattrFlags::empty())?)
}

/// `struct vfs_cap_data` of revision 2: permitted and effective, CAP_NET_BIND_SERVICE (bit 10).
fn capability_net_bind_service() -> Vec<u8> {
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The longest value that fits a leaf of the image, within a few bytes.
fn large(folder: &Path, random: &mut Random) -> io::Result<()> {
    let path = folder.join("large");
    file(&path, b"")?;
    let value = random.incompressible(1 << 16);
    for len_bytes in [65_000, 16_100, 8_000, 3_800, 3_000] {
        let done = lsetxattr(&path, "user.large", &value[..len_bytes], XattrFlags::empty());
        if unless_refused(done, &[Errno::NOSPC, Errno::TOOBIG])? {
            break;
        }
    }
    Ok(())
}

fn access_control_lists(folder: &Path) -> io::Result<()> {
    const USER_OBJ: u16 = 0x01;
    const USER: u16 = 0x02;
    const GROUP_OBJ: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    const NOBODY: u32 = u32::MAX;
    let list = acl(&[
        (USER_OBJ, 7, NOBODY),
        (USER, 6, 1000),
        (USER, 4, 70_000),
        (GROUP_OBJ, 5, NOBODY),
        (GROUP, 1, 100),
        (MASK, 7, NOBODY),
        (OTHER, 0, NOBODY),
    ]);
    let path = folder.join("acl");
    file(&path, b"")?;
    set(&path, "system.posix_acl_access", &list)?;
    let path = folder.join("acl-folder");
    std::fs::create_dir(&path)?;
    set(&path, "system.posix_acl_access", &list)?;
    set(&path, "system.posix_acl_default", &list)?;
    file(&path.join("inherits"), b"").map(drop)
}

/// `btrfs.compression` on files and, inherited, on a folder. The kernel refuses it under
/// `nodatacow`.
fn compression_properties(folder: &Path, random: &mut Random) -> io::Result<()> {
    for algorithm in ["zlib", "lzo", "zstd", "none"] {
        let path = folder.join(format!("compression-{algorithm}"));
        let target = file(&path, b"")?;
        let done = lsetxattr(&path, "btrfs.compression", algorithm.as_bytes(), XattrFlags::empty());
        unless_refused(done, &[Errno::INVAL])?;
        let bytes = random.compressible(200_000);
        std::os::unix::fs::FileExt::write_all_at(&target, &bytes, 0)?;

        let path = folder.join(format!("compression-{algorithm}-folder"));
        std::fs::create_dir(&path)?;
        set(&path, "btrfs.compression", algorithm.as_bytes())?;
        file(&path.join("inherits"), &random.compressible(3000))?;
    }
    Ok(())
}
