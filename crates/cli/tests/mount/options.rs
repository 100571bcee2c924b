//! The words after `-o`, errors before a mount, and mount(8).

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use larder_device::{Access, FileDevice};
use larder_format::superblock::{
    OFFSETS, SUPER_FLAG_ERROR, SUPER_FLAG_METADUMP_V2, SUPER_FLAG_SEEDING, SUPERBLOCK_SIZE,
};
use larder_format::{Logical, Superblock};
use larder_testkit::{ImageSpec, KernelImage, KernelMount, oracle};
use larder_volume::Volume;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{Mounted, larder, shell, succeed};

/// What a command that must fail writes on standard error.
fn failure(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn errors_are_reported_before_mount_returns() {
    let mut mounted = Mounted::new();
    mounted.unmount();
    let (image, point) = (mounted.image(), mounted.path());
    let mount = |arguments: &[&str], image: &Path, point: &Path| {
        failure(larder().arg("mount").args(arguments).arg(image).arg(point))
    };
    assert!(mount(&["-o", "wibble"], &image, &point).contains("'wibble'"));
    assert!(mount(&["-o", "rescue=all"], &image, &point).contains("rescue= goes with ro"));
    assert!(mount(&["-o", "autodefrag"], &image, &point).contains("'autodefrag'"));
    assert!(mount(&["-o", "subvol=none"], &image, &point).contains("none"));
    assert!(mount(&[], Path::new("/none"), &point).contains("/none"));
    assert!(mount(&[], &image, Path::new("/none")).contains("/none"));
    assert!(mount(&["--create", "1G"], &image, &point).contains("exists already"));
    assert!(failure(larder().arg("umount").arg(&point)).contains("nothing here"));
    mounted.mount(&[]);
    let twice = mount(&[], &image, &point);
    assert!(twice.contains("disk.img") && twice.contains("already"), "{twice}");
    assert!(mount(&[], &image, &image).contains("not a directory"));
    mounted.finish();
}

#[test]
fn mounts_for_reading_leave_the_image_unchanged() {
    let mut mounted = Mounted::new();
    fs::write(mounted.join("f"), "f").unwrap();
    mounted.unmount();
    let before = fs::read(mounted.image()).unwrap();
    mounted.mount(&["-o", "ro,norecovery,nossd_spread"]);
    assert_eq!(fs::read(mounted.join("f")).unwrap(), b"f");
    let error = fs::write(mounted.join("g"), "").unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
    mounted.unmount();
    assert!(fs::read(mounted.image()).unwrap() == before);
}

#[test]
fn mount_8_finds_the_helper() {
    let mounted = Mounted::unmounted();
    succeed(larder().args(["mkfs", "-q", "-b", "1G"]).arg(mounted.image()));
    let helpers = mounted.folder().join("sbin");
    fs::create_dir(&helpers).unwrap();
    for name in ["mount.fuse.larder", "umount.fuse.larder"] {
        symlink(env!("CARGO_BIN_EXE_larder"), helpers.join(name)).unwrap();
    }
    succeed(
        Command::new(helpers.join("mount.fuse.larder"))
            .arg(mounted.image())
            .arg(mounted.path())
            .args(["-n", "-o", "rw,noatime,nosuid"]),
    );
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line =
        table.lines().find(|line| line.contains(&*mounted.path().to_string_lossy())).unwrap();
    assert!(line.contains("nosuid") && line.contains("fuseblk.larder"), "{line}");
    fs::write(mounted.join("f"), "f").unwrap();
    succeed(Command::new(helpers.join("umount.fuse.larder")).arg(mounted.path()));
    mounted.check();
}

#[test]
fn subvolumes_are_shown_by_path_and_id() {
    let mut mounted = Mounted::unmounted();
    succeed(larder().args(["mkfs", "-q", "-b", "1G"]).arg(mounted.image()));
    let at = |path: &str| format!("{}:{path}", mounted.image().display());
    succeed(larder().args(["subvolume", "create", &at("/sub")]));
    succeed(larder().args(["mkdir", &at("/sub/inside")]));
    succeed(larder().args(["subvolume", "set-default", "256"]).arg(mounted.image()));
    for (options, name) in [("subvol=sub", "inside"), ("subvolid=5", "sub"), ("rw", "inside")] {
        mounted.mount(&["-o", options]);
        let names = fs::read_dir(mounted.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [name], "{options}");
        mounted.unmount();
    }
}

/// Flags and extents of files that are created with options, on a mount of larder and on the
/// kernel's.
#[test]
fn new_files_are_written_as_options_say() {
    for options in
        ["nodatacow", "nodatasum", "max_inline=0", "max_inline=100", "compress=zlib,nodatacow"]
    {
        let write = |folder: &Path| {
            for (name, len) in [("tiny", 90), ("small", 1500), ("large", 300_000)] {
                fs::write(folder.join(name), vec![b'a'; len]).unwrap();
            }
        };
        let mut ours = Mounted::unmounted();
        ours.mount(&["--create", "512m", "-o", options]);
        write(&ours.path());
        ours.unmount();
        ours.check();
        let theirs = KernelImage::empty(&ImageSpec::new("options"));
        let mount = theirs.mount(options);
        write(mount.path());
        mount.sync();
        drop(mount);
        let seen = |image: &Path| {
            let mount = KernelMount::open(&[image.to_owned()], "ro");
            ["tiny", "small", "large"].map(|name| {
                let file = mount.path().join(name);
                let flags = succeed(Command::new("lsattr").arg(&file));
                let extents = succeed(Command::new("filefrag").args(["-v", "-b1"]).arg(&file));
                let flags = flags.split(' ').next().map(str::to_owned);
                (flags, extents.contains("inline"), extents.contains("encoded"))
            })
        };
        assert_eq!(seen(&ours.image()), seen(&theirs.devices()[0]), "{options}");
        let sums = |image: &Path| {
            let dump = oracle::dump_tree(&[image.to_owned()], &["-t", "5"]).unwrap();
            dump.lines().filter(|line| line.contains("NODATASUM")).count()
        };
        assert_eq!(sums(&ours.image()), sums(&theirs.devices()[0]), "{options}");
    }
}

/// Which reads change times of last access: as on the kernel's.
#[test]
pub(crate) fn times_of_last_access_are_kept_as_on_the_kernels() {
    let old = "touch -d 2001-01-01 f d l";
    let steps = [
        "cat f > /dev/null",
        "cat f > /dev/null",
        "ls d > /dev/null",
        "ls d > /dev/null",
        "readlink l",
        "echo more >> f; sleep 0.02; cat f > /dev/null",
        "cat f > /dev/null",
        "touch d/new; sleep 0.02; ls d > /dev/null",
        "touch -a -d 2001-01-01 f; cat f > /dev/null",
        "chattr +A f; touch -a -d 2001-01-01 f; cat f > /dev/null",
    ];
    for options in ["noatime", "relatime", "strictatime", "relatime,nodiratime"] {
        let history = |folder: &Path| {
            shell(
                folder,
                &format!(
                    "echo data > f; mkdir d; touch d/e; ln -s f l; {old}; touch -h -d 2001-01-01 l"
                ),
            );
            let times = || {
                ["f", "d", "l"].map(|name| {
                    let metadata = fs::symlink_metadata(folder.join(name)).unwrap();
                    (metadata.atime(), metadata.atime_nsec())
                })
            };
            steps.map(|step| {
                let before = times();
                // So that a new time differs from the old one.
                shell(folder, &format!("sleep 0.02; {step}"));
                let after = times();
                [0, 1, 2].map(|at| before[at] != after[at])
            })
        };
        let mut ours = Mounted::unmounted();
        ours.mount(&["--create", "512m", "-o", options]);
        let changed = history(&ours.path());
        let line = shell(&ours.path(), "findmnt -n -o OPTIONS --target .");
        let word = options.split(',').next().unwrap();
        assert!(word == "strictatime" || line.contains(word), "{line}");
        ours.unmount();
        let theirs = KernelImage::empty(&ImageSpec::new("times"));
        let mount = theirs.mount(options);
        let expected = history(mount.path());
        for ((step, changed), expected) in steps.iter().zip(changed).zip(expected) {
            assert_eq!(changed, expected, "{options}: {step}");
        }
    }
}

#[test]
fn the_kernel_reads_ahead_as_far_as_a_request_goes() {
    let mounted = Mounted::new();
    let device = fs::metadata(mounted.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = format!("/sys/class/bdi/{major}:{minor}-fuseblk/read_ahead_kb");
    assert_eq!(fs::read_to_string(setting).unwrap(), "1024\n");
    mounted.finish();
}

/// The kernel keeps these by itself, and asks no server.
#[test]
fn a_mount_remounted_for_reading_cannot_be_changed() {
    let mounted = Mounted::new();
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        succeed(Command::new("mount").args(["-i", "-o", &options]).arg(mounted.path()));
    };
    fs::write(mounted.join("f"), "f").unwrap();
    remount("ro");
    let error = fs::write(mounted.join("f"), "g").unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
    remount("rw");
    fs::write(mounted.join("f"), "h").unwrap();
    mounted.finish();
}

/// A signal ends programs that wait on a mount, and the mount goes on.
#[test]
fn programs_that_wait_can_be_interrupted() {
    let mounted = Mounted::new();
    mounted.shell("touch f; mkfifo p");
    let waits = [
        "exec flock f true",
        "exec cat p",
        "exec dd if=/dev/zero of=other bs=4k oflag=sync status=none",
    ];
    for waiting in waits {
        let holder = waiting.contains("flock").then(|| {
            let holder = fs::File::open(mounted.join("f")).unwrap();
            rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
            holder
        });
        let mut waiter = Command::new("bash");
        let mut waiter = waiter.args(["-c", waiting]).current_dir(mounted.path()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(waiter.try_wait().unwrap().is_none(), "it waits: {waiting}");
        let pid = rustix::process::Pid::from_child(&waiter);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = waiter.wait().unwrap();
        assert!(!status.success(), "{waiting}");
        drop(holder);
        fs::write(mounted.join("after"), waiting).unwrap();
    }
    // Only the kernel knows when an interrupted file was last written to.
    mounted.shell("rm p other");
    mounted.finish();
}

/// Sets a flag in both copies of the superblock.
fn set_flag(image: &Path, flag: u64) {
    let file = fs::File::options().read(true).write(true).open(image).unwrap();
    for offset in &OFFSETS[..2] {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, offset.0).unwrap();
        let superblock = Superblock::mut_from_bytes(&mut bytes).unwrap();
        superblock.flags |= flag;
        superblock.update_checksum();
        file.write_all_at(superblock.as_bytes(), offset.0).unwrap();
    }
}

/// As mount does with what is write-protected.
#[test]
fn what_can_only_be_read_is_mounted_read_only() {
    for (flag, why) in [
        (SUPER_FLAG_SEEDING, "it is a seed"),
        (SUPER_FLAG_METADUMP_V2, "it is a metadata dump"),
        (SUPER_FLAG_ERROR, "the kernel noted that it is damaged"),
    ] {
        let mut mounted = Mounted::with_size("1G");
        fs::write(mounted.join("f"), "f").unwrap();
        mounted.unmount();
        let image = mounted.image();
        set_flag(&image, flag);
        let before = fs::read(&image).unwrap();
        let refused = failure(larder().arg("touch").arg(format!("{}:/f", image.display())));
        assert!(refused.contains(why) && refused.contains("disk.img"), "{refused}");
        for options in ["rw", "ro"] {
            let mut mount = larder();
            mount.args(["mount", "-o", options]).arg(&image).arg(mounted.path());
            let output = mount.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{said}");
            assert_eq!(said.contains(why), options == "rw", "{said}");
            assert_eq!(fs::read(mounted.join("f")).unwrap(), b"f");
            let error = fs::write(mounted.join("g"), "").unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
            mounted.unmount();
        }
        assert!(fs::read(&image).unwrap() == before, "{why}: the image changed");
    }
}

#[test]
fn an_earlier_commit_is_mounted_where_the_last_cannot_be_read() {
    let mut mounted = Mounted::with_size("1G");
    for name in ["one", "two", "three"] {
        fs::write(mounted.join(name), name).unwrap();
        succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
    }
    mounted.unmount();
    let image = mounted.image();
    // With a sound root the option changes nothing.
    mounted.mount(&["-o", "usebackuproot"]);
    fs::write(mounted.join("four"), "four").unwrap();
    mounted.unmount();
    let device = Arc::new(FileDevice::open(&image, Access::ReadOnly).unwrap());
    let volume = Volume::open(vec![device], &larder_volume::OpenOptions::default()).unwrap();
    let (root, len_bytes) = (volume.superblock().root(), u64::from(volume.nodesize()));
    let file = fs::File::options().write(true).open(&image).unwrap();
    for range in volume.map(root, len_bytes).unwrap() {
        for mirror in range.mirrors {
            file.write_all_at(&vec![0; range.len_bytes as usize], mirror.physical.0).unwrap();
        }
    }
    drop(volume);
    let point = mounted.path();
    let mount = |options: &str| {
        let mut mount = larder();
        mount.args(["mount", "-o", options]).arg(&image).arg(&point);
        mount
    };
    failure(&mut mount("rw"));
    for options in ["usebackuproot", "ro,rescue=usebackuproot", "recovery"] {
        succeed(&mut mount(options));
        for name in ["one", "two", "three"] {
            assert_eq!(fs::read_to_string(mounted.join(name)).unwrap(), name, "{options}");
        }
        let error = fs::write(mounted.join("g"), "").unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
        mounted.unmount();
    }
}

/// Data is shown without checksums, on demand and for reading only.
#[test]
fn what_no_checksum_proves_right_is_mounted_on_demand() {
    let mut mounted = Mounted::with_size("1G");
    let (image, point) = (mounted.image(), mounted.path());
    let content = "no two sectors are alike".repeat(4000);
    fs::write(mounted.join("file"), &content).unwrap();
    mounted.unmount();
    let dump = succeed(larder().args(["inspect", "dump-tree", "-r"]).arg(&image));
    let root = dump.lines().find(|line| line.starts_with("checksum tree key")).unwrap();
    let mut numbers = root.split_whitespace().filter_map(|word| word.parse().ok());
    let root = numbers.next().expect("its address");
    let device = Arc::new(FileDevice::open(&image, Access::ReadOnly).unwrap());
    let volume = Volume::open(vec![device], &larder_volume::OpenOptions::default()).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    for range in volume.map(Logical(root), u64::from(volume.nodesize())).unwrap() {
        for mirror in range.mirrors {
            file.write_all_at(&vec![0; range.len_bytes as usize], mirror.physical.0).unwrap();
        }
    }
    drop(volume);
    mounted.mount(&["-o", "ro"]);
    let refused = fs::read(mounted.join("file"));
    mounted.unmount();
    assert_eq!(Errno::from_io_error(&refused.unwrap_err()), Some(Errno::IO));
    for words in ["rescue=ibadroots", "rescue=idatacsums", "rescue=all"] {
        mounted.mount(&["-o", "ro", "-o", words]);
        let read = fs::read_to_string(mounted.join("file"));
        let mut remount = larder();
        let remounted = remount.args(["mount", "-o", "remount,rw"]).arg(&point).output().unwrap();
        mounted.unmount();
        assert!(read.unwrap() == content, "{words}");
        let said = String::from_utf8_lossy(&remounted.stderr).into_owned();
        assert!(said.contains("rescue= goes with ro"), "{said}");
    }
}

/// A state that no superblock names is found on the device.
#[test]
fn an_earlier_state_is_mounted_for_reading() {
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["--create", "1G", "-o", "nodiscard"]);
    let (image, point) = (mounted.image(), mounted.path());
    let generation = || {
        let device = Arc::new(FileDevice::open(&image, Access::ReadOnly).unwrap());
        let volume = Volume::open(vec![device], &larder_volume::OpenOptions::default()).unwrap();
        volume.superblock().generation.get()
    };
    let mut generations = Vec::new();
    for name in 0..8 {
        fs::write(mounted.join(name.to_string()), name.to_string()).unwrap();
        succeed(larder().args(["filesystem", "sync"]).arg(&point));
        generations.push(generation());
    }
    let mount = |generation: u64, options: &[&str]| {
        let mut mount = larder();
        mount.arg("mount").args(options).arg(format!("{}@{generation}", image.display()));
        mount.arg(&point);
        mount
    };
    let refused = failure(&mut mount(generations[1], &["-o", "ro"]));
    assert!(refused.contains("mounted at"), "{refused}");
    mounted.unmount();
    let missing = failure(&mut mount(4711, &["-o", "ro"]));
    assert!(missing.contains("no state of generation 4711"), "{missing}");
    for (options, count) in [(&["-o", "ro"][..], 2), (&[], 7)] {
        succeed(&mut mount(generations[count - 1], options));
        let names = fs::read_dir(&point).unwrap().count();
        let content = fs::read_to_string(mounted.join("1"));
        let written = fs::write(mounted.join("new"), "").unwrap_err();
        let remounted = larder().args(["mount", "-o", "remount,rw"]).arg(&point).output().unwrap();
        mounted.unmount();
        assert_eq!((names, content.unwrap()), (count, "1".to_owned()));
        assert_eq!(Errno::from_io_error(&written), Some(Errno::ROFS));
        assert!(!remounted.status.success());
    }
    succeed(larder().arg("check").arg(&image));
}

/// A seed belongs to every file system that was grown from it, and is none of them.
#[test]
fn a_seed_and_its_sprouts_are_mounted_side_by_side() {
    let mounted = Mounted::unmounted();
    let folder = mounted.folder();
    shell(
        folder,
        "for n in seed one two; do truncate -s 300M $n; done; mkfs.btrfs -q seed; mkdir k a b s
        mount -o loop seed k; echo base > k/base; umount k; btrfstune -f -S 1 seed
        trap 'umount k 2>/dev/null || true; losetup -d ${s:-} ${d:-} 2>/dev/null || true' EXIT
        for n in one two; do
            s=$(losetup -f --show seed); d=$(losetup -f --show $n)
            mount -o ro $s k; btrfs device add -f $d k >/dev/null
            mount -o remount,rw k; echo $n > k/$n; umount k; losetup -d $d $s; s=; d=
        done",
    );
    let at = |name: &str| folder.join(name);
    let names = |point: &str| {
        let names = fs::read_dir(at(point)).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // Each has the seed open, and finds it beside its own device.
    for (image, point) in [("one", "a"), ("two", "b"), ("seed", "s")] {
        succeed(larder().arg("mount").arg(at(image)).arg(at(point)));
    }
    let seen = ["a", "b", "s"].map(names);
    let written = fs::write(at("a/new"), "new");
    for point in ["a", "b", "s"] {
        succeed(larder().arg("umount").arg(at(point)));
    }
    assert_eq!(seen, [vec!["base", "one"], vec!["base", "two"], vec!["base"]]);
    written.unwrap();
    let listed = succeed(larder().arg("ls").arg(format!("{}:/", at("one").display())));
    assert_eq!(listed, "base\nnew\none\n");
}
