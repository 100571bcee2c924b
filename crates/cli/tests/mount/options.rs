//! The words behind `-o`, what goes wrong before a mount, and mount(8).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

use crate::support::{Mounted, larder, succeed};

/// What a command that must fail writes on standard error.
fn failure(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_wrong_is_said_before_it_returns() {
    let mut mounted = Mounted::new();
    mounted.unmount();
    let (image, point) = (mounted.image(), mounted.path());
    let mount = |arguments: &[&str], image: &Path, point: &Path| {
        failure(larder().arg("mount").args(arguments).arg(image).arg(point))
    };
    assert!(mount(&["-o", "wibble"], &image, &point).contains("'wibble'"));
    assert!(mount(&["-o", "rescue=all"], &image, &point).contains("not supported yet"));
    assert!(mount(&["-o", "subvol=none"], &image, &point).contains("none"));
    assert!(mount(&[], Path::new("/none"), &point).contains("/none"));
    assert!(mount(&[], &image, Path::new("/none")).contains("/none"));
    assert!(mount(&["--create", "1G"], &image, &point).contains("there already"));
    assert!(failure(larder().arg("umount").arg(&point)).contains("nothing here"));
    mounted.mount(&[]);
    let twice = mount(&[], &image, &point);
    assert!(twice.contains("disk.img"), "{twice}");
    mounted.finish();
}

#[test]
fn what_is_mounted_for_reading_stays_as_it_is() {
    let mut mounted = Mounted::new();
    fs::write(mounted.join("f"), "f").unwrap();
    mounted.unmount();
    let before = fs::read(mounted.image()).unwrap();
    mounted.mount(&["-o", "ro"]);
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
    assert!(line.contains("nosuid") && line.contains("fuse.larder"), "{line}");
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
