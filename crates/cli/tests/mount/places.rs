//! Where a file system is mounted: through symbolic links, in place of a mount whose server is gone,
//! and from paths of any length.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use larder_testkit::Scratch;
use rustix::process::{Signal, kill_process};

use crate::support::{Mounted, larder, shell, succeed, wait_until};

#[test]
fn symbolic_links_to_a_mountpoint_stand_for_it() {
    let mut mounted = Mounted::new();
    mounted.shell("echo bread > f");
    symlink("mnt", mounted.folder().join("link")).unwrap();
    symlink(mounted.folder().join("link"), mounted.folder().join("second")).unwrap();
    symlink("loop", mounted.folder().join("loop")).unwrap();
    let at = |name: &str| mounted.folder().join(name);
    for name in ["link", "second", "mnt/", "mnt/.", "./link/"] {
        wait_until("it is unmounted", || {
            larder().arg("umount").arg(at(name)).status().unwrap().success()
        });
        assert!(!at("mnt/f").exists(), "{name}");
        succeed(larder().arg("mount").arg(mounted.image()).arg(at(name)));
        assert_eq!(fs::read(at("mnt/f")).unwrap(), b"bread\n");
    }
    assert!(!larder().arg("umount").arg(at("loop")).status().unwrap().success());
    mounted.unmount();
    mounted.check();
}

#[test]
fn a_mount_whose_server_was_killed_gives_way() {
    for options in [&[][..], &["-o", "ro"]] {
        let mut mounted = Mounted::new();
        mounted.shell("echo bread > f; sync");
        mounted.unmount();
        mounted.serve(options);
        mounted.shell("stat . f");
        let output = larder().arg("mount").arg(mounted.image()).arg(mounted.path()).output();
        assert!(!output.unwrap().status.success(), "its server lives");
        kill_process(mounted.server_pid(), Signal::KILL).unwrap();
        mounted.reap();
        mounted.mount(options);
        assert_eq!(mounted.shell("cat f"), "bread\n");
        let table = shell(mounted.folder(), "grep -c \"$PWD/mnt \" /proc/self/mountinfo");
        assert_eq!(table, "1\n", "nothing lies below");
        mounted.finish();
    }
}

#[test]
fn images_have_paths_of_any_length() {
    let scratch = Scratch::new();
    let name = "a".repeat(200);
    let folder = (0..8).fold(scratch.path().to_owned(), |path, _| path.join(&name));
    fs::create_dir_all(&folder).unwrap();
    let (image, mountpoint) = (folder.join("disk.img"), folder.join("mnt"));
    fs::create_dir(&mountpoint).unwrap();
    let larder_mount = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.arg("mount").args(options).arg(&image).arg(&mountpoint);
        succeed(&mut command);
    };
    for options in [&["--create", "1G"][..], &["-o", "ro"], &[]] {
        larder_mount(options);
        fs::read_dir(&mountpoint).unwrap();
        // Commands find the mount by its image.
        succeed(larder().args(["filesystem", "usage"]).arg(&image));
        succeed(larder().arg("umount").arg(&mountpoint));
        succeed(larder().arg("check").arg(&image));
    }
}
