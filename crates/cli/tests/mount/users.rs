//! Permissions, ACLs, and mounting by users other than root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use larder_testkit::{KernelMount, Scratch};

use crate::rings::Server;
use crate::support::{Mounted, as_nobody, larder, larder_in, succeed, wait_until};

/// The uid of nobody.
const NOBODY: u32 = 65_534;

fn nobody_can(mounted: &Mounted, line: &str) -> bool {
    let mut command = as_nobody("sh");
    let output = command.args(["-c", line]).current_dir(mounted.path()).output();
    output.expect("setpriv starts").status.success()
}

/// A mount that other users can look into.
fn shared() -> Mounted {
    let mut mounted = Mounted::unmounted();
    // Users who look in pass through.
    fs::set_permissions(mounted.folder(), Permissions::from_mode(0o755)).unwrap();
    mounted.mount(&["-o", "allow_other", "--create", "1G"]);
    mounted
}

#[test]
pub(crate) fn the_kernel_checks_permissions() {
    let mounted = shared();
    mounted
        .shell("echo x > private; chmod 600 private; echo y > public; mkdir d; mkdir -m 1777 tmp");
    assert!(!nobody_can(&mounted, "cat private"));
    assert!(nobody_can(&mounted, "cat public"));
    assert!(!nobody_can(&mounted, "echo z > public"));
    assert!(!nobody_can(&mounted, "touch d/f"));
    assert!(nobody_can(&mounted, "touch tmp/own"));
    assert_eq!(fs::metadata(mounted.join("tmp/own")).unwrap().uid(), NOBODY);
    mounted.shell("touch tmp/roots");
    assert!(!nobody_can(&mounted, "rm -f tmp/roots"), "the directory is sticky");
    assert!(nobody_can(&mounted, "rm tmp/own"));
    assert!(!nobody_can(&mounted, "mv tmp/roots tmp/other"));
    mounted.finish();
}

#[test]
fn directories_pass_their_group_on() {
    let mounted = shared();
    mounted.shell("mkdir d; chgrp games d; chmod 2777 d");
    assert!(nobody_can(&mounted, "touch d/f; mkdir d/e"));
    let group = fs::metadata(mounted.join("d")).unwrap().gid();
    assert_eq!(fs::metadata(mounted.join("d/f")).unwrap().gid(), group);
    let below = fs::metadata(mounted.join("d/e")).unwrap();
    assert_eq!((below.gid(), below.mode() & 0o2000), (group, 0o2000));
    mounted.finish();
}

#[test]
fn writing_by_others_takes_setuid_bits() {
    let mounted = shared();
    mounted.shell("cp /bin/true t; chmod 6777 t; cp /bin/true u; chmod 6777 u");
    assert!(nobody_can(&mounted, "echo >> t"));
    assert_eq!(fs::metadata(mounted.join("t")).unwrap().mode() & 0o7777, 0o777);
    assert!(nobody_can(&mounted, ": > u"));
    assert_eq!(fs::metadata(mounted.join("u")).unwrap().mode() & 0o7777, 0o777);
    mounted.finish();
}

#[test]
fn acls_are_enforced_and_inherited() {
    let mounted = shared();
    mounted.shell("echo x > f; chmod 600 f; setfacl -m u:nobody:r f");
    assert!(nobody_can(&mounted, "cat f"));
    assert!(!nobody_can(&mounted, "echo y > f"));
    // The mask is the group's permissions in the mode, both ways.
    assert_eq!(fs::metadata(mounted.join("f")).unwrap().mode() & 0o777, 0o640);
    mounted.shell("chmod 600 f");
    assert!(!nobody_can(&mounted, "cat f"));
    assert!(mounted.shell("getfacl -c f").contains("mask::---"));
    mounted.shell("mkdir d; setfacl -d -m u:nobody:rwX d; umask 077; echo x > d/g; mkdir d/e");
    mounted.shell("setfacl -m u:nobody:x d");
    assert!(nobody_can(&mounted, "echo y > d/g"));
    assert!(mounted.shell("getfacl -c d/e").contains("default:user:nobody:rwx"));
    mounted.shell("setfacl -b f");
    assert!(!mounted.shell("getfacl -c f").contains("mask"));
    mounted.finish();
}

#[test]
fn others_cannot_look_in_unless_they_may() {
    let mut mounted = Mounted::unmounted();
    fs::set_permissions(mounted.folder(), Permissions::from_mode(0o755)).unwrap();
    mounted.mount(&["--create", "1G"]);
    assert!(!nobody_can(&mounted, "ls ."));
    mounted.finish();
}

/// A folder of nobody with a directory to mount at, and with a copy of the program.
fn folder_of_nobody() -> Scratch {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    larder_in(scratch.path());
    fs::create_dir(at("mnt")).unwrap();
    for path in [scratch.path().to_owned(), at("mnt")] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    scratch
}

#[test]
pub(crate) fn other_users_mount_use_and_unmount() {
    let scratch = folder_of_nobody();
    let at = |name: &str| scratch.path().join(name);
    let as_user =
        |line: &str| succeed(as_nobody("bash").args(["-euc", line]).current_dir(scratch.path()));
    as_user(
        "./larder mount --create 1G disk.img mnt; echo bread > mnt/b; mkdir mnt/d; ln mnt/b mnt/d/c",
    );
    assert!(Command::new("ls").arg(at("mnt")).output().is_ok());
    let listed =
        as_user("cat mnt/d/c; ./larder umount mnt; ls mnt; ./larder check disk.img > check");
    assert_eq!(listed, "bread\n");
    as_user("./larder mount disk.img mnt; cat mnt/b; ./larder umount mnt");
    succeed(larder().arg("check").arg(at("disk.img")));
}

/// What systemd runs for a user's mount, with the settings of a file, also without options.
#[test]
fn the_unit_for_systemd_mounts_and_unmounts() {
    let unit = include_str!("../../../../packaging/larder-mount@.service");
    let run = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).expect("it is there");
        line.replace("/usr/bin/larder", "./larder")
    };
    let (start, stop) = (run("ExecStart="), run("ExecStop="));
    let scratch = folder_of_nobody();
    succeed(larder().args(["mkfs", "-q", "-b", "1G"]).arg(scratch.path().join("disk.img")));
    std::os::unix::fs::chown(scratch.path().join("disk.img"), Some(NOBODY), Some(NOBODY)).unwrap();
    for (options, owner) in [("", "0"), ("map-users=nobody:root,noatime", "65534")] {
        let mut bash = as_nobody("bash");
        bash.args(["-euc", &format!("{start}; stat -c %u mnt; {stop}; ls mnt")]);
        bash.envs([("IMAGE", "disk.img"), ("MOUNTPOINT", "mnt"), ("OPTIONS", options)]);
        assert_eq!(succeed(bash.current_dir(scratch.path())), format!("{owner}\n"));
    }
}

/// First use: the user who creates a file system can write to it, mounted by larder or by the
/// kernel. A failed attempt leaves nothing.
#[test]
fn the_user_who_makes_a_file_system_can_write_to_it() {
    let scratch = folder_of_nobody();
    let at = |name: &str| scratch.path().join(name);
    let as_user =
        |line: &str| succeed(as_nobody("bash").args(["-euc", line]).current_dir(scratch.path()));
    as_user("! ./larder mkfs -b 1M disk.img; ! ./larder mkfs disk.img 2> said; test ! -e disk.img");
    assert!(as_user("cat said").contains("-b"), "it says how a file is made");
    as_user("./larder mkfs -q -b 1G disk.img; ./larder mount disk.img mnt");
    as_user("mkdir mnt/d; echo bread > mnt/d/b; ./larder umount mnt; ./larder mkdir disk.img:/e");
    as_user("./larder mkfs -q -b 1G --owner 1:2 other.img");
    succeed(larder().args(["mkfs", "-q", "-b", "1G"]).arg(at("roots.img")));
    let owner = |image: &str| {
        let mount = KernelMount::open(&[at(image)], "ro");
        let metadata = fs::metadata(mount.path()).unwrap();
        (metadata.uid(), metadata.gid())
    };
    assert_eq!(owner("disk.img"), (NOBODY, NOBODY));
    assert_eq!(owner("other.img"), (1, 2));
    assert_eq!(owner("roots.img"), (0, 0));
}

#[test]
fn users_have_the_rights_to_subvolumes_that_btrfs_gives_them() {
    for may_delete in [false, true] {
        let mut mounted = shared();
        mounted.shell("mkdir own; chown nobody own; mkdir closed");
        succeed(larder().args(["subvolume", "create"]).arg(mounted.join("roots")));
        if may_delete {
            mounted.unmount();
            mounted.mount(&["-o", "allow_other,user_subvol_rm_allowed"]);
        }
        larder_in(mounted.folder());
        let can = |line: &str| nobody_can(&mounted, &format!("../larder {line}"));
        assert!(can("subvolume create own/mine"));
        assert_eq!(fs::metadata(mounted.join("own/mine")).unwrap().uid(), NOBODY);
        assert!(!can("subvolume create closed/other"));
        assert!(!can("subvolume create other"));
        assert!(can("subvolume snapshot own/mine own/again"));
        assert!(!can("subvolume snapshot roots own/theft"), "it belongs to root");
        assert!(!can("subvolume snapshot own/mine closed/again"));
        assert!(can("property set own/again ro true"));
        assert!(can("property set own/again ro false"));
        assert!(!can("property set roots ro true"));
        assert!(!can("filesystem label . mine"));
        assert!(!can("subvolume set-default own/mine"));
        assert!(!can("subvolume list ."), "trees are not for everybody");
        assert!(!can("inspect inode-resolve 257 ."));
        assert!(can("inspect rootid own/mine"));
        assert!(can("filesystem df ."));
        assert!(can("filesystem label ."));
        assert!(can("subvolume snapshot -r own/mine own/kept"));
        assert!(!can("subvolume delete own/kept"), "it is read-only");
        assert!(can("property set own/kept ro false"));
        assert_eq!(can("subvolume delete own/kept"), may_delete);
        assert_eq!(can("subvolume delete own/again"), may_delete);
        assert!(!can("subvolume delete roots"));
        mounted.finish();
    }
}

/// A user with hardly any threads mounts, or is told why not: no program waits for a server that
/// has too few.
#[test]
fn few_threads_serve_or_the_server_says_why_not() {
    /// The user whose threads are counted: no other test's.
    const FRUGAL: &str = "games";
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    larder_in(scratch.path());
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o777)).unwrap();
    let as_frugal = |threads: &str| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nproc={threads}")).arg("setpriv");
        command.args(["--reuid", FRUGAL, "--regid", FRUGAL, "--clear-groups"]);
        command.current_dir(scratch.path()).stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let succeeds = |line: &str| {
        let mut command = as_frugal("1000");
        command.args(["timeout", "20", "bash", "-euc", line]).status().unwrap().success()
    };
    let mut served = Vec::new();
    for threads in 1..16 {
        assert!(succeeds("rm -rf mnt disk.img; mkdir mnt"));
        let mut server = as_frugal(&threads.to_string());
        server.args(["./larder", "mount", "-f", "--create", "1G", "disk.img", "mnt"]);
        let mut server = Server(server.spawn().unwrap());
        let mut ended = None;
        wait_until("it serves or has ended", || {
            ended = server.0.try_wait().unwrap();
            ended.is_some()
                || succeeds("mountpoint -q mnt; echo bread > mnt/f; grep -q bread mnt/f")
        });
        served.push(ended.is_none());
        match ended {
            Some(status) => assert!(!status.success()),
            None => {
                assert!(succeeds("./larder umount mnt"));
                assert!(server.0.wait().unwrap().success());
            }
        }
        let _ = rustix::mount::unmount(at("mnt"), rustix::mount::UnmountFlags::DETACH);
    }
    assert!(!served[0] && served[14], "{served:?}");
}
