//! The ids that a mount shows in place of others (`MOUNT_ATTR_IDMAP`), as the kernel tells root.
//!
//! # Invariants
//! - A mount is named by the number that no other mount ever gets, and which a descriptor leads to:
//!   what is read is true of that descriptor.
//! - The server sends itself no request: the kernel answers from what it has cached.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

use larder_format::{IdMap, IdRange, OwnerMap};
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The number of statmount(2) on all architectures that have io_uring.
const STATMOUNT: libc::c_long = 457;
/// `STATX_MNT_ID_UNIQUE`.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
/// `STATMOUNT_MNT_BASIC`, `STATMOUNT_SUPPORTED_MASK`, and `STATMOUNT_MNT_UIDMAP` with
/// `STATMOUNT_MNT_GIDMAP`.
const BASIC: u64 = 0x2;
const SUPPORTED: u64 = 0x1000;
const MAPS: u64 = 0x2000 | 0x4000;
/// `MOUNT_ATTR_IDMAP`.
const IS_MAPPED: u64 = 0x10_0000;
/// `NS_GET_MNTNS_ID` of linux/nsfs.h.
const NS_GET_MNTNS_ID: Opcode = opcode::read::<u64>(0xB7, 5);
/// Room for the maps of a mount: 340 ranges each.
const ROOM_BYTES: usize = 64 << 10;
/// The only map of a user namespace that has all ids as they are.
const WHOLE_MAP: [&str; 3] = ["0", "0", "4294967295"];

/// `mnt_id_req`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Asked {
    size: u32,
    spare: u32,
    mount: u64,
    wanted: u64,
    namespace: u64,
}

/// `statmount`, without the text after it.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Answer {
    size: u32,
    options: u32,
    mask: u64,
    superblock: [u64; 3],
    ids: [u64; 3],
    attributes: u64,
    propagation: [u64; 9],
    supported: u64,
    uid_ranges: u32,
    uid_map: u32,
    gid_ranges: u32,
    gid_map: u32,
    spare: [u64; 43],
}
const _: () = assert!(size_of::<Answer>() == 512);

/// What a descriptor of a process leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The number of the file system, as in `st_dev`.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// The number of the mount that it came through.
    mount: u64,
}

impl Opened {
    /// What the descriptor `fd` of the thread `pid` leads to.
    pub(crate) fn of(pid: u32, fd: u32) -> io::Result<Self> {
        let mask = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE) | StatxFlags::INO;
        let path = format!("/proc/{pid}/fd/{fd}");
        let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, mask)?;
        if found.stx_mask & STATX_MNT_ID_UNIQUE == 0 {
            return Err(Errno::OPNOTSUPP.into());
        }
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        Ok(Self { device, inode: found.stx_ino, mount: found.stx_mnt_id })
    }

    /// From the ids that the mount shows to those of the file system, if the mount is in the mount
    /// namespace of the thread `pid` or in that of the server.
    pub(crate) fn owner_map(&self, pid: u32) -> io::Result<OwnerMap> {
        let theirs = namespace_of(pid)?;
        let answer = Answered::of(self.mount, theirs).or_else(|_| Answered::of(self.mount, 0))?;
        answer.owner_map()
    }
}

/// Whether this process can see how mounts map ids, as root of the whole system can since Linux
/// 6.15.
pub(crate) fn can_be_seen() -> bool {
    let pid = std::process::id();
    let is_whole = |name: &str| {
        let map = fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        map.split_whitespace().eq(WHOLE_MAP)
    };
    let sees = |root: File| Opened::of(pid, root.as_raw_fd() as u32)?.owner_map(pid);
    rustix::process::geteuid().is_root()
        && ["uid_map", "gid_map"].into_iter().all(is_whole)
        && File::open("/").and_then(sees).is_ok()
}

/// The number of the mount namespace of a thread.
fn namespace_of(pid: u32) -> io::Result<u64> {
    let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
    // SAFETY: the kernel writes a u64 for this request.
    Ok(unsafe { ioctl(&namespace, Getter::<NS_GET_MNTNS_ID, u64>::new()) }?)
}

/// What the kernel says of a mount: the structure, and the text after it.
struct Answered {
    answer: Answer,
    text: Vec<u8>,
}

impl Answered {
    /// What it says of the mount `mount` in a mount namespace; 0 for that of this process.
    fn of(mount: u64, namespace: u64) -> io::Result<Self> {
        let size = size_of::<Asked>() as u32;
        let asked = Asked { size, spare: 0, mount, wanted: BASIC | SUPPORTED | MAPS, namespace };
        let mut room = vec![0_u8; ROOM_BYTES];
        // SAFETY: the kernel reads a structure of the size that it begins with, and writes at most
        // as many bytes as the room has.
        let result = unsafe {
            libc::syscall(STATMOUNT, asked.as_bytes().as_ptr(), room.as_mut_ptr(), room.len(), 0)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = Answer::new_zeroed();
        let (fixed, text) = room.split_at(size_of::<Answer>());
        answer.as_mut_bytes().copy_from_slice(fixed);
        Ok(Self { answer, text: text.to_vec() })
    }

    fn owner_map(&self) -> io::Result<OwnerMap> {
        let Answer { mask, attributes, supported, .. } = self.answer;
        let Answer { uid_ranges, uid_map, gid_ranges, gid_map, .. } = self.answer;
        let can_say = mask & (BASIC | SUPPORTED) == BASIC | SUPPORTED && supported & MAPS == MAPS;
        if !can_say {
            return Err(Errno::OPNOTSUPP.into());
        }
        if attributes & IS_MAPPED == 0 {
            return Ok(OwnerMap::default());
        }
        if mask & MAPS != MAPS {
            return Err(Errno::INVAL.into());
        }
        let users = self.map_at(uid_map, uid_ranges).ok_or(Errno::INVAL)?;
        let groups = self.map_at(gid_map, gid_ranges).ok_or(Errno::INVAL)?;
        Ok(OwnerMap { users, groups })
    }

    /// The map of `count` ranges at `offset` of the text. Each is the first id in the file system,
    /// the first that is shown, and how many there are; a zero ends it.
    fn map_at(&self, offset: u32, count: u32) -> Option<IdMap> {
        let lines = self.text.get(offset as usize..)?.split(|byte| *byte == 0);
        let ranges = lines.take(count as usize).map(|line| {
            let mut words = str::from_utf8(line).ok()?.split(' ').map(|word| word.parse().ok());
            let mut next = || words.next().flatten();
            Some(IdRange { inner: next()?, outer: next()?, count: next()? })
        });
        let ranges = ranges.collect::<Option<Vec<_>>>()?;
        if ranges.is_empty() { None } else { IdMap::new(ranges, None).ok() }
    }
}
