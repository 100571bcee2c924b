//! What POSIX and Linux say about each call, including errors.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags,
    fallocate, getxattr, linkat, listxattr, mknodat, open, removexattr, renameat_with, setxattr,
    statvfs, statx,
};
use rustix::io::Errno;

use crate::support::{Mounted, assert_same_lines, larder, succeed, wait_until};

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

#[test]
pub(crate) fn names_have_any_byte_and_up_to_255() {
    let mounted = Mounted::new();
    let mut names: Vec<Vec<u8>> =
        (1..=255_u8).filter(|byte| *byte != b'/').map(|byte| vec![byte, b'x']).collect();
    names.push(vec![b'n'; 255]);
    for name in &names {
        fs::write(mounted.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let mut listed: Vec<Vec<u8>> = fs::read_dir(mounted.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
        .collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
    for name in &names {
        assert_eq!(fs::read(mounted.join(OsStr::from_bytes(name))).unwrap(), *name);
    }
    let long = mounted.join("n".repeat(256));
    assert_eq!(errno(File::create(&long)), Some(Errno::NAMETOOLONG));
    assert_eq!(errno(fs::metadata(&long)), Some(Errno::NAMETOOLONG));
    assert_eq!(errno(fs::create_dir(&long)), Some(Errno::NAMETOOLONG));
    mounted.finish();
}

#[test]
pub(crate) fn symbolic_links_hold_up_to_4095_bytes() {
    let mounted = Mounted::new();
    let target = format!("{}x", "d/".repeat(2047));
    assert_eq!(target.len(), 4095);
    symlink(&target, mounted.join("long")).unwrap();
    assert_eq!(fs::read_link(mounted.join("long")).unwrap(), Path::new(&target));
    assert_eq!(fs::symlink_metadata(mounted.join("long")).unwrap().len(), 4095);
    assert_eq!(errno(symlink("x".repeat(4096), mounted.join("longer"))), Some(Errno::NAMETOOLONG));
    symlink("loop", mounted.join("loop")).unwrap();
    assert_eq!(errno(fs::metadata(mounted.join("loop"))), Some(Errno::LOOP));
    assert_eq!(errno(fs::read(mounted.join("long"))), Some(Errno::NOENT));
    mounted.finish();
}

#[test]
pub(crate) fn names_that_are_there_or_not() {
    let mounted = Mounted::new();
    let at = |name: &str| mounted.join(name);
    fs::create_dir_all(at("d/e")).unwrap();
    fs::write(at("f"), "f").unwrap();
    assert_eq!(errno(fs::create_dir(at("d"))), Some(Errno::EXIST));
    assert_eq!(errno(File::create_new(at("f"))), Some(Errno::EXIST));
    assert_eq!(errno(fs::remove_dir(at("d"))), Some(Errno::NOTEMPTY));
    assert_eq!(errno(fs::remove_dir(at("f"))), Some(Errno::NOTDIR));
    assert_eq!(errno(fs::remove_file(at("d"))), Some(Errno::ISDIR));
    assert_eq!(errno(fs::remove_file(at("none"))), Some(Errno::NOENT));
    assert_eq!(errno(File::create(at("f/below"))), Some(Errno::NOTDIR));
    assert_eq!(errno(fs::write(at("d"), "")), Some(Errno::ISDIR));
    assert_eq!(errno(fs::hard_link(at("d"), at("d2"))), Some(Errno::PERM));
    assert_eq!(errno(fs::rename(at("d"), at("d/e/d"))), Some(Errno::INVAL));
    assert_eq!(errno(fs::rename(at("f"), at("d"))), Some(Errno::ISDIR));
    assert_eq!(errno(fs::rename(at("d"), at("f"))), Some(Errno::NOTDIR));
    // A name that was looked up in vain is found once it exists, and not once it is gone.
    assert!(!at("g").exists());
    fs::hard_link(at("f"), at("g")).unwrap();
    assert_eq!(fs::metadata(at("g")).unwrap().nlink(), 2);
    fs::remove_file(at("f")).unwrap();
    assert!(!at("f").exists());
    assert_eq!(fs::metadata(at("g")).unwrap().nlink(), 1);
    mounted.finish();
}

#[test]
pub(crate) fn renames_with_flags() {
    let mounted = Mounted::new();
    let at = |name: &str| mounted.join(name);
    fs::write(at("a"), "a").unwrap();
    fs::create_dir(at("b")).unwrap();
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert!(at("a").is_dir());
    assert_eq!(fs::read(at("b")).unwrap(), b"a");
    rename("b", "a/c", RenameFlags::NOREPLACE).unwrap();
    assert_eq!(rename("a", "none", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    rename("a/c", "d", RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs::symlink_metadata(at("a/c")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    mounted.finish();
}

#[test]
pub(crate) fn special_files_and_types() {
    let mounted = Mounted::new();
    let device = rustix::fs::makedev(259, 0x12345);
    for (name, file_type) in [
        ("fifo", FileType::Fifo),
        ("char", FileType::CharacterDevice),
        ("block", FileType::BlockDevice),
        ("socket", FileType::Socket),
    ] {
        mknodat(CWD, mounted.join(name), file_type, Mode::from(0o640), device).unwrap();
    }
    assert!(fs::symlink_metadata(mounted.join("fifo")).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(mounted.join("socket")).unwrap().file_type().is_socket());
    for name in ["char", "block"] {
        assert_eq!(fs::symlink_metadata(mounted.join(name)).unwrap().rdev(), device);
    }
    let types: Vec<bool> = fs::read_dir(mounted.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_type().unwrap().is_block_device())
        .collect();
    assert_eq!(types, [false, false, true, false]);
    mounted.finish();
}

#[test]
pub(crate) fn data_is_where_it_was_written() {
    let mounted = Mounted::new();
    let path = mounted.join("f");
    let file = File::create_new(&path).unwrap();
    file.write_all_at(b"start", 0).unwrap();
    file.write_all_at(b"middle", 70_000).unwrap();
    file.write_all_at(&vec![7; 3 << 20], 1 << 30).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 30) + (3 << 20));
    let mut part = [0; 16];
    let other = File::open(&path).unwrap();
    other.read_exact_at(&mut part, 69_995).unwrap();
    assert_eq!(&part, b"\0\0\0\0\0middle\0\0\0\0\0");
    let seek = |whence| rustix::fs::seek(&other, whence);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(8192)).unwrap(), 69_632);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)).unwrap(), 4096);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(73_728)).unwrap(), 1 << 30);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(2 << 30)), Err(Errno::NXIO));
    file.set_len(70_003).unwrap();
    file.set_len(70_010).unwrap();
    assert_eq!(fs::read(&path).unwrap()[70_000..], *b"mid\0\0\0\0\0\0\0");
    drop((file, other));
    mounted.finish();
}

#[test]
pub(crate) fn appending_truncating_and_replacing() {
    let mounted = Mounted::new();
    let path = mounted.join("log");
    let mut one = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let mut two = OpenOptions::new().append(true).open(&path).unwrap();
    for line in 0..1000 {
        writeln!(if line % 2 == 0 { &mut one } else { &mut two }, "{line}").unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().enumerate().all(|(line, text)| text == line.to_string()));
    OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    writeln!(one, "again").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"again\n");
    fs::write(mounted.join("new"), "new").unwrap();
    fs::rename(mounted.join("new"), &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    // A program can use a file that it has open after a rename has replaced it.
    let mut old = two;
    writeln!(old, "still").unwrap();
    drop((one, old));
    mounted.finish();
}

#[test]
pub(crate) fn deleted_files_stay_for_programs_that_have_them_open() {
    let mounted = Mounted::new();
    let path = mounted.join("f");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(&vec![9; 100_000]).unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut data = Vec::new();
    file.read_to_end(&mut data).unwrap();
    assert_eq!(data, vec![9; 100_000]);
    fs::create_dir(mounted.join("d")).unwrap();
    let directory = File::open(mounted.join("d")).unwrap();
    fs::remove_dir(mounted.join("d")).unwrap();
    let made = rustix::fs::openat(&directory, "x", OFlags::CREATE | OFlags::WRONLY, 0o644.into());
    assert_eq!(made.err(), Some(Errno::NOENT));
    drop((file, directory));
    mounted.finish();
}

#[test]
pub(crate) fn files_without_a_name_get_one() {
    let mounted = Mounted::new();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file: File = open(mounted.path(), flags, 0o640.into()).unwrap().into();
    file.write_all_at(b"unnamed", 0).unwrap();
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
    linkat(&file, "", CWD, mounted.join("named"), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(fs::read(mounted.join("named")).unwrap(), b"unnamed");
    let lost: File = open(mounted.path(), flags, 0o640.into()).unwrap().into();
    lost.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    drop((file, lost));
    mounted.finish();
}

#[test]
pub(crate) fn times_and_attributes() {
    let mounted = Mounted::new();
    let path = mounted.join("f");
    fs::write(&path, "x").unwrap();
    let of = |path: &Path| statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::ALL).unwrap();
    let made = of(&path);
    assert!(made.stx_mask & StatxFlags::BTIME.bits() != 0);
    let time = |seconds| std::time::UNIX_EPOCH + std::time::Duration::new(seconds, 987_654_321);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let times = fs::FileTimes::new().set_modified(time(1)).set_accessed(time(4_000_000_000));
    file.set_times(times).unwrap();
    drop(file);
    let set = of(&path);
    assert_eq!((set.stx_mtime.tv_sec, set.stx_mtime.tv_nsec), (1, 987_654_321));
    assert_eq!((set.stx_atime.tv_sec, set.stx_atime.tv_nsec), (4_000_000_000, 987_654_321));
    let moment = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
    assert_eq!(moment(set.stx_btime), moment(made.stx_btime));
    assert!(set.stx_ctime.tv_sec >= made.stx_ctime.tv_sec);
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), 0o104_751);
    std::os::unix::fs::chown(&path, Some(1234), Some(5678)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode()), (1234, 5678, 0o100_751));
    let before = of(&mounted.path());
    fs::write(mounted.join("g"), "").unwrap();
    let after = of(&mounted.path());
    assert!(moment(after.stx_mtime) >= moment(before.stx_mtime));
    mounted.finish();
}

#[test]
pub(crate) fn extended_attributes() {
    let mounted = Mounted::new();
    let path = mounted.join("f");
    fs::write(&path, "x").unwrap();
    let none = XattrFlags::empty();
    setxattr(&path, "user.a", b"1", none).unwrap();
    setxattr(&path, "trusted.b", &[2; 3000], none).unwrap();
    setxattr(&path, "user.empty", b"", none).unwrap();
    assert_eq!(setxattr(&path, "user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.c", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(setxattr(&path, "user.big", &vec![0; 20_000], none), Err(Errno::NOSPC));
    assert_eq!(setxattr(&path, "other.x", b"", none), Err(Errno::OPNOTSUPP));
    let mut value = [0; 4096];
    assert_eq!(getxattr(&path, "trusted.b", &mut value).unwrap(), 3000);
    assert_eq!(getxattr(&path, "trusted.b", &mut value[..10]), Err(Errno::RANGE));
    assert_eq!(getxattr(&path, "user.none", &mut value), Err(Errno::NODATA));
    let len = listxattr(&path, &mut value).unwrap();
    let mut names: Vec<&[u8]> = value[..len].split(|byte| *byte == 0).collect();
    names.sort_unstable();
    assert_eq!(names, [&b""[..], b"trusted.b", b"user.a", b"user.empty"]);
    removexattr(&path, "user.a").unwrap();
    assert_eq!(removexattr(&path, "user.a"), Err(Errno::NODATA));
    mounted.finish();
}

#[test]
pub(crate) fn writing_removes_capabilities_from_a_program() {
    let mounted = Mounted::new();
    let path = mounted.join("program");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    setxattr(&path, "security.capability", &capability, XattrFlags::empty()).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"true\n").unwrap();
    let mut value = [0; 64];
    assert_eq!(getxattr(&path, "security.capability", &mut value), Err(Errno::NODATA));
    mounted.finish();
}

#[test]
pub(crate) fn running_programs_are_not_written() {
    let mounted = Mounted::new();
    let program = mounted.join("sleep");
    // Not by this process, of which a child may inherit a descriptor for writing.
    mounted.shell("cp /bin/sleep .");
    let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
    let written = OpenOptions::new().write(true).open(&program);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(errno(written), Some(Errno::TXTBSY));
    mounted.finish();
}

#[test]
pub(crate) fn holes_are_punched() {
    let mounted = Mounted::new();
    let file = File::create_new(mounted.join("f")).unwrap();
    file.write_all_at(&vec![5; 1 << 20], 0).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, flags, 4096, 1 << 19).unwrap();
    let data = fs::read(mounted.join("f")).unwrap();
    assert_eq!(data.len(), 1 << 20);
    assert!(data[4096..4096 + (1 << 19)].iter().all(|byte| *byte == 0));
    assert!(data[..4096].iter().chain(&data[4096 + (1 << 19)..]).all(|byte| *byte == 5));
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().blocks() * 512, 1 << 19);
    drop(file);
    mounted.finish();
}

#[test]
pub(crate) fn room_is_allocated_and_zeroed() {
    let mounted = Mounted::new();
    let file = File::create_new(mounted.join("f")).unwrap();
    file.write_all_at(&[5; 8192], 0).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8192);
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().blocks() * 512, 1 << 20);
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 21).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 21);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 4000, 100).unwrap();
    let data = fs::read(mounted.join("f")).unwrap();
    assert!(data[..4000].iter().chain(&data[4100..8192]).all(|byte| *byte == 5));
    assert!(data[4000..4100].iter().chain(&data[8192..]).all(|byte| *byte == 0));
    drop(file);
    mounted.finish();
}

#[test]
pub(crate) fn copies_share_data_where_possible() {
    let mounted = Mounted::new();
    let data: Vec<u8> = (0..(8 << 20) + 100_u32).map(|number| (number / 7) as u8).collect();
    fs::write(mounted.join("f"), &data).unwrap();
    mounted.shell("sync f; cp f copy; cp --reflink=auto --sparse=never f other; sync copy other");
    assert!(fs::read(mounted.join("copy")).unwrap() == data);
    let used = mounted.shell("df --output=used -B1M . | tail -1");
    assert!(used.trim().parse::<u64>().unwrap() < 16, "three files, one extent: {used}");
    mounted.finish();
}

#[test]
pub(crate) fn data_that_the_kernel_keeps_is_found() {
    let mounted = Mounted::new();
    let file = File::create_new(mounted.join("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[1; 4096], 1 << 18).unwrap();
    let seek = |whence| rustix::fs::seek(&file, whence);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)).unwrap(), 1 << 18);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(1 << 18)).unwrap(), (1 << 18) + 4096);
    file.write_all_at(&[2; 4096], 1 << 20).unwrap();
    assert_eq!(seek(rustix::fs::SeekFrom::Data((1 << 20) + 10)).unwrap(), (1 << 20) + 10);
    drop(file);
    mounted.finish();
}

#[test]
fn a_full_file_system_says_so_and_recovers() {
    let mut mounted = Mounted::unmounted();
    // Deleted files free their space with the next commit.
    mounted.mount(&["--create", "128M", "-o", "commit=1"]);
    let mut file = File::create_new(mounted.join("f")).unwrap();
    let mut filled = || -> io::Result<()> {
        for _ in 0..200 {
            file.write_all(&vec![3; 1 << 20])?;
        }
        file.sync_all()
    };
    assert_eq!(errno(filled()), Some(Errno::NOSPC));
    let available = || {
        let room = statvfs(mounted.path()).unwrap();
        (room.f_bavail * room.f_frsize) >> 20
    };
    assert!(available() < 16, "{} MiB", available());
    drop(file);
    fs::remove_file(mounted.join("f")).unwrap();
    wait_until("what was deleted is free", || available() > 32);
    fs::write(mounted.join("g"), vec![4; 24 << 20]).unwrap();
    mounted.finish();
}

#[test]
pub(crate) fn locks_exclude() {
    let mounted = Mounted::new();
    let path = mounted.join("f");
    let (one, two) = (File::create_new(&path).unwrap(), File::open(&path).unwrap());
    use rustix::fs::{FlockOperation, flock};
    flock(one.as_fd(), FlockOperation::LockExclusive).unwrap();
    assert_eq!(flock(&two, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
    drop((one, two));
    mounted.finish();
}

#[test]
pub(crate) fn a_listing_survives_changes() {
    let mounted = Mounted::new();
    let names: Vec<String> = (0..3000).map(|number| format!("file-{number:05}")).collect();
    for name in &names {
        fs::write(mounted.join(name), "").unwrap();
    }
    let mut listed = Vec::new();
    for (number, entry) in fs::read_dir(mounted.path()).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Some listed entries go, and something new comes.
        if number % 3 == 0 {
            fs::remove_file(mounted.join(&name)).unwrap();
        }
        if number % 100 == 0 {
            fs::write(mounted.join(format!("new-{number}")), "").unwrap();
        }
        listed.push(name);
    }
    listed.retain(|name| !name.starts_with("new-"));
    assert_eq!(listed, names);
    mounted.finish();
}

#[test]
fn an_inode_has_65535_names() {
    let mut mounted = Mounted::unmounted();
    succeed(Command::new("truncate").args(["-s", "1G"]).arg(mounted.image()));
    succeed(Command::new("mkfs.btrfs").arg("-q").arg(mounted.image()));
    let link = |below: &Path, numbers: Range<u32>| {
        for number in numbers {
            fs::hard_link(below.join("first"), below.join(format!("d/{number}"))).unwrap();
        }
    };
    {
        let kernel = KernelMount::open(&[mounted.image()], "");
        fs::write(kernel.path().join("first"), "x").unwrap();
        fs::create_dir(kernel.path().join("d")).unwrap();
        link(kernel.path(), 1..65_000);
    }
    mounted.serve(&[]);
    link(&mounted.path(), 65_000..65_535);
    let first = mounted.join("first");
    assert_eq!(errno(fs::hard_link(&first, mounted.join("more"))), Some(Errno::MLINK));
    assert_eq!(fs::metadata(&first).unwrap().nlink(), 65_535);
    fs::remove_file(mounted.join("d/77")).unwrap();
    fs::hard_link(&first, mounted.join("more")).unwrap();
    mounted.unmount();
    // btrfs check takes minutes for so many names of one inode.
    succeed(larder().arg("check").arg(mounted.image()));
    let kernel = KernelMount::open(&[mounted.image()], "ro");
    assert_eq!(fs::metadata(kernel.path().join("more")).unwrap().nlink(), 65_535);
}

#[test]
pub(crate) fn flags_are_set_and_hold() {
    let mounted = Mounted::new();
    mounted.shell("touch f; mkdir d; chattr +C d; touch d/g; chattr +i f");
    assert!(mounted.shell("lsattr f").starts_with("----i"));
    assert!(mounted.shell("lsattr d").contains('C'));
    assert_eq!(errno(fs::write(mounted.join("f"), "x")), Some(Errno::PERM));
    assert_eq!(errno(fs::remove_file(mounted.join("f"))), Some(Errno::PERM));
    mounted.shell("chattr -i f; echo x > f");
    mounted.finish();
}

/// Whether data is overwritten in place cannot change once a file has data.
#[test]
fn flags_of_empty_files_stay_when_data_is_cached() {
    let script = r"
import fcntl, os, struct, subprocess
GET, SET, NOCOW = 0x80086601, 0x40086602, 0x800000
os.mkdir('d')
subprocess.check_call(['chattr', '+C', 'd'])
for name, data in (('full', b'bread'), ('empty', b'')):
    with open('d/' + name, 'wb') as file:
        file.write(data)
        file.flush()
        # Without closing: the kernel writes data back then.
        again = os.open('d/' + name, os.O_RDONLY)
        fcntl.ioctl(again, SET, struct.pack('l', 0))
        print(name, struct.unpack('l', fcntl.ioctl(again, GET, bytes(8)))[0] == NOCOW)
";
    let run =
        |place: &Path| succeed(Command::new("python3").args(["-c", script]).current_dir(place));
    let image = KernelImage::empty(&ImageSpec::new("empty-flags"));
    let expected = run(image.mount("").path());
    for mut mounted in [Mounted::new(), Mounted::with_writeback_cache()] {
        assert_eq!(run(&mounted.path()), expected);
        mounted.unmount();
        mounted.check();
    }
}

#[test]
pub(crate) fn attributes_are_made_and_replaced_as_on_the_kernels() {
    let outcomes = |place: &Path| {
        let path = place.join("with-attributes");
        fs::write(&path, "").unwrap();
        let mut outcomes = Vec::new();
        for name in ["user.a", "trusted.a", "security.a", "btrfs.compression"] {
            let both = XattrFlags::CREATE | XattrFlags::REPLACE;
            for flags in [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE, both] {
                for (new, is_there) in
                    [("zstd", false), ("zstd", true), ("", false), ("", true), ("no", false)]
                {
                    if flags == both && new != "zstd" {
                        continue;
                    }
                    let _ = removexattr(&path, name);
                    if is_there {
                        setxattr(&path, name, b"zlib", XattrFlags::empty()).unwrap();
                    }
                    let set = setxattr(&path, name, new.as_bytes(), flags);
                    let mut value = [0; 8];
                    let got = getxattr(&path, name, &mut value);
                    let case = (name, flags.bits(), is_there, new);
                    outcomes.push(format!("{case:?}: {:?}", (set, got, value)));
                }
            }
        }
        for name in ["btrfs.unknown", "btrfs.", "user.", "trusted.", "foo.a", "system.a"] {
            let set = setxattr(&path, name, b"1", XattrFlags::empty());
            let removed = removexattr(&path, name);
            let got = getxattr(&path, name, &mut [0; 8]);
            outcomes.push(format!("{name}: {:?}", (set, removed, got)));
        }
        outcomes.join("\n")
    };
    let mounted = Mounted::new();
    let image = KernelImage::build(&ImageSpec::new("attributes"), &Content::new(74));
    assert_same_lines(&outcomes(&mounted.path()), &outcomes(image.mount("").path()));
    mounted.finish();
}

/// Calls without an effect set times in some forms, and not in others.
#[test]
pub(crate) fn calls_without_effect_set_times_as_on_the_kernels() {
    let script = r"
import os, time
os.mkdir('d')
file = os.open('f', os.O_CREAT | os.O_RDWR)
os.write(file, b'bread')
open('empty', 'w').close()
calls = {
    'truncate': lambda: os.truncate('f', 5),
    'ftruncate': lambda: os.ftruncate(file, 5),
    'open to truncate': lambda: os.close(os.open('empty', os.O_WRONLY | os.O_TRUNC)),
    'chmod': lambda: os.chmod('f', os.stat('f').st_mode & 0o7777),
    'chown': lambda: os.chown('f', -1, -1),
    'chown of a directory': lambda: os.chown('d', -1, -1),
    'write nothing': lambda: os.write(file, b''),
    'rename': lambda: os.rename('f', 'f'),
}
for name, call in calls.items():
    paths = ['f', 'empty', 'd']
    before = [os.stat(path) for path in paths]
    time.sleep(0.05)
    call()
    after = [os.stat(path) for path in paths]
    print(name, [(old.st_mtime_ns != new.st_mtime_ns, old.st_ctime_ns != new.st_ctime_ns)
                 for old, new in zip(before, after)])
";
    let moved = |place: &Path| {
        succeed(Command::new("/usr/bin/python3").args(["-c", script]).current_dir(place))
    };
    let image = KernelImage::empty(&ImageSpec::new("times"));
    let expected = moved(image.mount("").path());
    for mounted in [Mounted::new(), Mounted::with_writeback_cache()] {
        assert_eq!(moved(&mounted.path()), expected);
        mounted.finish();
    }
}

/// The kernel sets some of these times and the server the others.
#[test]
pub(crate) fn nothing_is_older_than_its_birth() {
    let mounted = Mounted::new();
    for number in 0..200 {
        let path = mounted.join(number.to_string());
        fs::write(&path, "x").unwrap();
        let found = statx(CWD, &path, AtFlags::empty(), StatxFlags::ALL).unwrap();
        let moment = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
        let born = moment(found.stx_btime);
        assert!(born <= moment(found.stx_mtime) && born <= moment(found.stx_ctime), "{number}");
        assert!(moment(found.stx_mtime) <= moment(found.stx_ctime), "{number}");
    }
    mounted.finish();
}
