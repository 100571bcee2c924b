//! Mounts that show users and groups by other ids than those that are stored.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::{ImageSpec, KernelImage, KernelMount, Scratch};
use rustix::mount::{UnmountFlags, unmount};

use crate::on_mount::fails;
use crate::support::{
    Mounted, as_nobody, assert_same_lines, larder, larder_in, python, shell, succeed,
};

/// Files of the users 0 and 5, and of one whose id is in no range.
const MAKE: &str = "
    echo zero > zero; echo five > five; chown 5:6 five; echo far > far; chown 70000:70000 far
    chmod 666 far; mkdir d; mkdir five.d; chown 5:6 five.d; mkdir -m 1777 sticky
    echo a > sticky/five; chown 5:6 sticky/five; mkdir setgid; chown 5:6 setgid; chmod 2775 setgid
    mkdir far.d; chown 70000:70000 far.d; chmod 777 far.d; echo a > far.d/f; chown 5:6 far.d/f
    mkdir half.d; chown 5:70000 half.d; chmod 777 half.d; mkdir group.d; chown 0:6 group.d
    echo acl > acl; chmod 600 acl; setfacl -m u:5:r,g:6:rw acl; ln -s zero link; chown -h 5:6 link
    cp /bin/true cap; setcap cap_net_raw+ep cap; cp /bin/true cap5; setcap -n 5 cap_net_raw+ep cap5
    cp /bin/true capfar; setcap -n 70000 cap_net_raw+ep capfar; mknod null c 1 3; chmod 666 null
    cp /bin/true setuid; chown 5:6 setuid; chmod 6755 setuid";

/// What users do with them, where ids are shown from 100000 on. Some of it fails.
const USE: &str = r#"
    as() { local id=$1; shift; setpriv --reuid=$id --regid=$id --clear-groups -- sh -c "$*"; }
    with() { setpriv --reuid=100009 --regid=100009 --groups=$1 -- sh -c "$2"; }
    exec 2>&1
    set +e
    for i in *; do stat -c '%n %u:%g %a' $i; getfacl -n -c $i; done
    getcap -n cap cap5 capfar; getfattr -e hex -n security.capability cap cap5 capfar
    echo == an owner
    as 100000 'echo x >> zero; touch d/new; mkdir d/dir; ln -s a d/link; mknod d/fifo p'
    as 100000 'ln zero d/hard; chmod 600 zero; mv d/new d/newer; rm d/fifo; chmod 4755 d/newer'
    stat -c '%n %u:%g %a' d/*; chmod 644 zero
    echo == another user
    as 100005 'echo x > zero; cat acl; echo x > acl; cat five; touch d/no; touch five.d/yes'
    as 100009 'cat acl; echo by >> five'; with 100006 'cat acl; echo by group >> acl; tail -1 acl'
    stat -c %u:%g five.d/yes; with 100006 'touch group.d/no'; chmod 775 group.d
    as 100000 'chmod 775 group.d'; with 100006 'touch group.d/yes'
    echo == users in no range
    as 200000 'cat five; touch sticky/x; mkdir sticky/y; ln -s a sticky/z; mknod sticky/n p'
    touch d/root; mkdir d/rootdir; ln -s a d/rootlink; cat zero; echo y >> zero; cat zero
    echo == files in no range
    as 100005 'cat far; echo x > far; touch far.d/x; rm far.d/f; mkdir half.d/x; ls far.d'
    cat far; echo x > far; ls far.d; chmod 600 far; chgrp 100006 far; touch -d 2001-01-01 far
    truncate -s 0 far; setfattr -n user.a -v b far; ln far d/far; rm far; mv far d/
    echo == sticky, setgid and setuid
    as 100009 'rm -f sticky/five'; as 100005 'rm sticky/five; touch setgid/f; mkdir setgid/d'
    stat -c '%n %u:%g %a' setgid/*; as 100005 'echo >> setuid'; stat -c %a setuid
    echo == new owners
    chown 100007:100008 five; stat -c %u:%g five; chown 5:6 five; chown 200000 five
    chgrp 200000 five; stat -c %u:%g five; as 100005 'chgrp 100006 five.d/yes'
    as 100005 'chown 100006 five.d/yes; chgrp 100005 five.d/yes'; chown -h 100009:100009 link
    chown 100003:100003 far; stat -c %u:%g far link; echo y > far; cat far
    echo == ACLs
    setfacl -m u:100009:rw,g:100010:r five; getfacl -n -c five; setfacl -m u:9:rw five
    as 100009 'echo by acl >> five'; tail -1 five; setfacl -d -m u:100011:rwx five.d
    as 100005 'mkdir five.d/inherits; touch five.d/too'; getfacl -n -c five.d/*
    as 100000 'setfacl -m u:100012:r acl; chmod 640 acl'; getfacl -n -c acl
    echo == capabilities
    cp /bin/true no; as 100000 'cp /bin/true c'; setcap cap_net_raw+ep c; getcap -n c
    setcap -n 100005 cap_net_raw+ep c; getcap -n c; setcap -n 7 cap_net_raw+ep c; getcap -n c
    chown 100001 c; getcap -n c"#;

/// What users do with subvolumes where ids are shown from 100000 on, also in a container.
const USE_SUBVOLUMES: &str = r#"
    echo == subvolumes
    mkdir -m 755 shut; mkdir s; as 100000 'mkdir -m 1777 open; mkdir -m 755 closed'
    sub() { local id=$1; shift; as $id "umask 027; ../larder subvolume $*"; echo "$? $id $*"; }
    sub 100005 create open/mine; sub 100005 create closed/no; sub 100000 create closed/own
    sub 5 create open/no; sub 5 create closed/no; sub 0 create open/no; sub 200000 create open/no
    sub 100005 snapshot open/mine open/again; sub 100006 snapshot open/mine open/theft
    sub 5 snapshot open/mine open/theft
    sub 100005 snapshot -r open/mine open/kept; as 100006 '../larder property set open/kept ro false'
    as 5 '../larder property set open/kept ro false'; as 100005 '../larder property set open/kept ro false'
    as 100005 'mkdir open/five; chmod 700 open/five; setfacl -m u:100007:rwx open/five'
    sub 100007 create open/five/by_acl; sub 100008 create open/five/no; sub 7 create open/five/no
    sub 100005 delete open/again; sub 0 delete open/again > /dev/null; ls open
    with 100005 'cd setgid && ../../larder subvolume create sub'
    contained() { python3 ../contained.py "0 100000 65536" "$1"; echo "$? $1"; }
    contained '../larder subvolume create closed/contained; touch closed/contained/f'
    contained '../larder subvolume snapshot closed/contained closed/copy; id -u; stat -c %u:%g closed/copy'
    contained 'chown 5:6 closed/copy/f; chmod 6755 closed/copy/f; stat -c "%u:%g %a" closed/copy/f'
    contained 'touch closed/contained/g; setfacl -m u:9:r closed/contained/g; getfacl -n -c closed/contained/g'
    stat -c '%n %u:%g %a' open/* closed/* open/five/* setgid/*"#;

/// What is stored in a tree that is mounted as it is.
fn stored(tree: &Path) -> String {
    let line = "find . -printf '%P %y %m %U:%G %s %l\\n' | sort
        find . ! -type l -print0 | sort -z | xargs -0 getfacl -n -p
        find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex 2>/dev/null";
    shell(tree, line)
}

const SHIFTED: &str = "0 100000 65536";
const SHIFT: &str = "allow_other,map-users=100000:0:65536,map-groups=100000:0:65536";

/// A mount for others to look into, of an image with these files.
fn with_files(make: &str, options: &str) -> Mounted {
    let mut mounted = Mounted::unmounted();
    fs::set_permissions(mounted.folder(), Permissions::from_mode(0o755)).unwrap();
    mounted.mount(&["--create", "1G"]);
    mounted.shell(make);
    mounted.unmount();
    mounted.mount(&["-o", options]);
    mounted
}

fn kernel_mount(mounted: &Mounted) -> KernelMount {
    KernelMount::open(&[mounted.image()], "ro")
}

/// The kernel's own mounts with other ids are the measure: what users see and may do, and what is
/// stored in the end.
#[test]
pub(crate) fn users_see_and_do_what_the_kernel_lets_them() {
    let (_image, plain, expected) = on_the_kernels_mount(USE);
    let mut mounted = with_files(MAKE, SHIFT);
    assert_same_lines(&mounted.shell(USE), &expected);
    mounted.unmount();
    mounted.check();
    assert_same_lines(&stored(kernel_mount(&mounted).path()), &stored(plain.path()));
}

#[test]
fn mounts_of_the_kernel_that_show_other_ids_are_as_those_of_btrfs() {
    let lines = format!("{USE}\n{USE_SUBVOLUMES}");
    let (_image, plain, expected) = on_the_kernels_mount(&lines);
    let mut mounted = with_files(MAKE, "allow_other");
    larder_in(mounted.folder());
    let other = Idmapped::of(&mounted.path(), SHIFTED, SHIFTED);
    assert_same_lines(&shell(&other.path(), &lines), &expected);
    drop(other);
    mounted.unmount();
    mounted.check();
    assert_same_lines(&stored(kernel_mount(&mounted).path()), &stored(plain.path()));
}

#[test]
fn commands_on_a_mount_that_the_kernel_maps_speak_of_the_ids_that_it_shows() {
    let mut mounted = with_files(OWNED, "allow_other");
    let (users, groups) = ("1 0 1,5 100 20", "1 0 1,6 100 20");
    let other = Idmapped::of(&mounted.path(), users, groups);
    speak_of_shown_ids(&other.path());
    let said = fails(larder().arg("cp").arg(other.path().join("t/f")).arg(mounted.join("copy")));
    assert!(said.contains("the mounts of both show different ids: copy with cp"), "{said}");
    drop(other);
    mounted.unmount();
    mounted.check();
    let seen = shell(&kernel_mount(&mounted).path().join("t"), "stat -c %u:%g f");
    assert_eq!(seen, "8:10\n");
}

/// Which mount an ioctl came through must be certain, unless all show the same ids.
#[test]
fn callers_through_mounts_that_cannot_be_told_apart_own_nothing() {
    const ASK: &str = "import fcntl, os, struct, sys
def make(directory, name):
    try:
        fcntl.ioctl(directory, 0x5000940E, bytearray(struct.pack('q4088s', 0, name.encode())))
        return 'made'
    except OSError as error:
        return error.strerror
os.setgid(5); os.setuid(5)
plain, other = (os.open(path + '/five.d', os.O_RDONLY) for path in sys.argv[1:3])
both = make(plain, 'both'), make(other, 'both')
third = os.dup(plain); os.close(plain)
print(*both, make(third, 'both'), sep=', ')
os.close(other)
print(make(third, 'plain'))
os.close(third)
print(make(os.open(sys.argv[2] + '/five.d', os.O_RDONLY), 'other'))";
    let mounted = with_files(MAKE, "allow_other");
    let program = larder_in(mounted.folder());
    let (mount, program) = (mounted.path(), program.to_str().unwrap());
    let other = Idmapped::of(&mount, SHIFTED, SHIFTED);
    let paths = [mount.to_str().unwrap(), other.path().to_str().unwrap()].map(str::to_owned);
    let seen = python(mounted.folder(), ASK, &[&paths[0], &paths[1]]);
    let no = "Value too large for defined data type";
    assert_eq!(seen, format!("{no}, {no}, {no}\nmade\n{no}\n"));
    drop(other);
    // A mount in no place cannot be seen.
    for id in ["5", "100005"] {
        let line = format!(
            "touch five.d/f 2> /dev/null; {program} subvolume create five.d/no 2>&1 || true"
        );
        let ids = [format!("--reuid={id}"), format!("--regid={id}")];
        let words = ["setpriv", &ids[0], &ids[1], "--clear-groups", "--", "sh", "-c", &line];
        let arguments = [&[&*paths[0], "", SHIFTED, SHIFTED], &words[..]].concat();
        let said = python(mounted.folder(), include_str!("idmapped.py"), &arguments);
        assert!(said.contains("five.d/no: "), "{id}: {said}");
    }
    assert_eq!(mounted.shell("ls five.d"), "f\nplain\n");
    mounted.shell("test $(stat -c %u five.d/f) = 5");
}

/// What `lines` print on a mount of btrfs that shows other ids, and what is stored then.
fn on_the_kernels_mount(lines: &str) -> (KernelImage, KernelMount, String) {
    let image = KernelImage::empty(&ImageSpec::new("idmapped"));
    let plain = image.mount("subvolid=5");
    fs::set_permissions(plain.path(), Permissions::from_mode(0o755)).unwrap();
    shell(plain.path(), MAKE);
    let printed = shell(&Idmapped::of(plain.path(), SHIFTED, SHIFTED).path(), lines);
    (image, plain, printed)
}

/// A further mount that shows other ids, by the kernel.
struct Idmapped(Scratch);

impl Idmapped {
    /// Of `from`. The maps are those of users and of groups.
    fn of(from: &Path, users: &str, groups: &str) -> Self {
        let folder = Scratch::new();
        let other = folder.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        larder_in(folder.path());
        let (from, to) = (from.to_str().unwrap(), other.to_str().unwrap());
        python(folder.path(), include_str!("idmapped.py"), &[from, to, users, groups]);
        fs::write(folder.path().join("contained.py"), include_str!("contained.py")).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("other")
    }
}

impl Drop for Idmapped {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn acls_show_no_entries_in_no_range_and_stay_otherwise() {
    let make = "echo x > f; chmod 600 f; setfacl -m u:5:r,u:70000:rw,g:70000:r f";
    let mut mounted = with_files(make, SHIFT);
    let seen = mounted.shell("getfacl -n -c f; chmod 640 f");
    assert!(seen.contains("user:100005:r--\ngroup::---\nmask::rw-\n"), "{seen}");
    mounted.unmount();
    let stored = shell(kernel_mount(&mounted).path(), "getfacl -n -c f");
    assert!(stored.contains("user:5:r--\nuser:70000:rw-"), "{stored}");
    assert!(stored.contains("group:70000:r--"), "{stored}");
}

/// A user mounts an image that root made, and appears as its owner.
#[test]
fn a_user_owns_what_root_made() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    larder_in(scratch.path());
    fs::create_dir(at("mnt")).unwrap();
    succeed(larder().args(["mkfs", "-q", "-b", "1G"]).arg(at("disk.img")));
    let kernel = KernelMount::open(&[at("disk.img")], "rw");
    shell(
        kernel.path(),
        "mkdir -m 700 d; echo bread > d/f; cp /bin/true d/ping; setcap cap_net_raw+ep d/ping",
    );
    drop(kernel);
    for path in [scratch.path().to_owned(), at("mnt"), at("disk.img")] {
        chown(path, Some(65534), Some(65534)).unwrap();
    }
    let as_user =
        |line: &str| succeed(as_nobody("bash").args(["-euc", line]).current_dir(scratch.path()));
    let maps = "map-users=nobody:root,map-groups=nogroup:root";
    as_user(&format!("./larder mount -o {maps} disk.img mnt"));
    let seen = as_user(
        "cd mnt; cat d/f; echo jam > d/g; chmod 600 d/g; cp -a d e; mkdir -m 2755 s; touch s/t
         ../larder subvolume create sub > /dev/null; echo x > sub/x
         ../larder subvolume snapshot sub snap > /dev/null; ../larder property set snap ro true
         ../larder property set snap ro false
         find . -printf '%u:%g\\n' | sort | uniq -c | awk '{ print $2 }'",
    );
    assert_eq!(seen, "bread\nnobody:nogroup\n");
    // The commands that speak to the server see and change the same.
    let seen = as_user(
        "cd mnt; ../larder cp -a d copy; ../larder ls -l copy | awk '{ print $3, $4 }' | sort -u
         ../larder tar d | tar -tv --numeric-owner | awk '{ print $2 }' | sort -u
         ../larder chmod -R go-rwx copy; stat -c %a copy/g; ../larder chown -R nobody copy
         ../larder rm -r e; ! ../larder chown -R 5 copy 2> ../said",
    );
    assert_eq!(seen, "65534 65534\n65534/65534\n600\n");
    let said = as_user("./larder umount mnt; cat said");
    assert!(said.contains("Value too large for defined data type"), "{said}");
    // A new image is its maker's too.
    as_user(&format!("./larder mount -o {maps} --create 1G new.img mnt; mkdir mnt/d"));
    as_user("./larder umount mnt");
    let refused = as_user(
        "! ./larder mount -o map-users=1:0 --create 1G other.img mnt 2> said; cat said; test ! -e other.img",
    );
    assert!(refused.contains("map-users maps user 65534 to no id"), "{refused}");
    for image in ["disk.img", "new.img"] {
        succeed(larder().arg("check").arg(at(image)));
        let kernel = KernelMount::open(&[at(image)], "ro");
        let owners = shell(kernel.path(), "find . -printf '%U:%G\\n' | sort -u; getcap -n -r .");
        let capability = if image == "disk.img" { "./d/ping cap_net_raw=ep\n" } else { "" };
        assert_eq!(owners, format!("0:0\n{capability}"), "{image}");
    }
}

#[test]
fn subvolumes_belong_to_those_whom_the_mount_shows() {
    let mounted = with_files("mkdir -m 1777 open; mkdir closed", SHIFT);
    larder_in(mounted.folder());
    let run = |id: &str, line: &str| {
        let mut setpriv = Command::new("setpriv");
        setpriv.args([&format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups", "--"]);
        let output = setpriv
            .args(["sh", "-c", &format!("../larder subvolume {line} 2>&1")])
            .current_dir(mounted.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        if output.status.success() { Ok(said) } else { Err(said) }
    };
    let refused = |id, line, reason| {
        let said = run(id, line).unwrap_err();
        assert!(said.contains(reason), "{id} {line}: {said}");
    };
    run("100007", "create open/mine").unwrap();
    assert_eq!(mounted.shell("stat -c %u:%g open/mine"), "100007:100007\n");
    run("100007", "snapshot open/mine open/again").unwrap();
    run("100000", "create closed/own").unwrap();
    refused("100008", "snapshot open/mine open/theft", "Operation not permitted");
    refused("100007", "create closed/other", "Permission denied");
    for stranger in ["0", "200000"] {
        refused(stranger, "create open/strange", "Value too large for defined data type");
    }
    refused("7", "snapshot open/mine open/theft", "Operation not permitted");
    run("0", "snapshot -r open/mine open/backup").unwrap();
    mounted.shell("test $(stat -c %u open/backup) = 100007");
}

#[test]
fn squash_is_for_all_ids_without_a_map() {
    let make = "echo a > a; chown 5:6 a; echo b > b; chown 70000:70000 b; mkdir -m 700 d
        chown 8:9 d; echo c > d/c; echo e > e; setfacl -m u:5:r,u:70000:r e";
    let mut mounted = with_files(make, "allow_other,map-users=1:8,squash=2:nogroup");
    let as_second = |line: &str| {
        succeed(
            Command::new("setpriv")
                .args(["--reuid=2", "--regid=65534"])
                .args(["--clear-groups", "--", "bash", "-euc", line])
                .current_dir(mounted.path()),
        )
    };
    let seen = as_second(
        "stat -c '%n %u:%g' *; echo more >> a; touch new; chmod 600 b; chown 2:65534 b
         getfacl -n -c e | grep user:2",
    );
    assert_eq!(seen, "a 2:65534\nb 2:65534\nd 1:65534\ne 2:65534\nuser:2:r--\nuser:2:r--\n");
    mounted.shell("chown 1:7 e; touch roots; ! setpriv --reuid=2 --clear-groups ls d 2> /dev/null");
    mounted.unmount();
    mounted.check();
    let kernel = kernel_mount(&mounted);
    let stored = shell(kernel.path(), "stat -c '%n %u:%g' *");
    // A chown to the shown owner keeps the stored one.
    assert_eq!(stored, "a 5:6\nb 70000:70000\nd 8:9\ne 8:65534\nnew 2:65534\nroots 2:65534\n");
}

/// Commands on a mount with these files that shows user 5 and group 6 as 100, and 1 as 0.
fn speak_of_shown_ids(mount: &Path) {
    let larder_on = |arguments: &[&str]| succeed(larder().args(arguments).current_dir(mount));
    let ids = |line: &str| line.split_whitespace().skip(2).take(2).collect::<Vec<_>>().join(":");
    let listed = larder_on(&["ls", "-l", "d"]);
    let listed: Vec<String> = listed.lines().map(ids).collect();
    let stat = shell(mount, "stat -c %u:%g d/f d/far");
    assert_eq!(stat, "100:100\n65534:65534\n");
    assert_eq!(listed, ["100:100", "65534:65534"]);
    for (arguments, expected) in [
        (["chmod", "600", "d/far"], "far: Permission denied"),
        (["rm", "-r", "hidden"], "rmdir hidden: Value too large"),
        (["mv", "hidden/x", "d"], "Permission denied"),
    ] {
        let said = fails(larder().args(arguments).current_dir(mount));
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    larder_on(&["chown", "-R", "101:102", "d"]);
    assert_eq!(shell(mount, "stat -c %u:%g d/f d/far"), "101:102\n101:102\n");
    let source = Scratch::new();
    shell(
        source.path(),
        "mkdir t; echo x > t/f; chown 103:104 t/f; setfacl -m u:105:r t/f
        cp /bin/true t/c; setcap -n 106 cap_net_raw+ep t/c",
    );
    larder_on(&["cp", "-a", source.path().join("t").to_str().unwrap(), "."]);
    assert_eq!(
        shell(mount, "stat -c %u:%g t/f; getfacl -n -c t/f | grep user:1; getcap -n t/c"),
        "103:104\nuser:105:r--\nt/c cap_net_raw=ep [rootid=106]\n"
    );
    let (back, program) = (Scratch::new(), env!("CARGO_BIN_EXE_larder"));
    let line = format!(
        "{program} tar t | tar -C {} --xattrs --xattrs-include='*' -xp",
        back.path().display()
    );
    shell(mount, &line);
    assert_eq!(stored(back.path()), stored(&source.path().join("t")));
    // An id in no range is refused, for a copy and for a new file.
    shell(source.path(), "chown 999 t/f");
    let source = source.path().join("t").display().to_string();
    let refused = fails(larder().args(["cp", "-a", &source, "other"]).current_dir(mount));
    assert!(refused.contains("chown other/f: Value too large for defined data type"), "{refused}");
}

/// Some have no shown id with these maps.
const OWNED: &str =
    "mkdir d hidden; echo x > d/f; echo y > d/far; echo z > hidden/x; chown -R 1:1 .
    chown 5:6 d/f; chown 70000:70000 d/far hidden; setfacl -m u:5:r d/f";

#[test]
fn commands_on_the_mount_speak_of_the_ids_that_it_shows() {
    let options = "allow_other,map-users=0:1/100:5:20,map-groups=0:1/100:6:20";
    let mut mounted = with_files(OWNED, options);
    speak_of_shown_ids(&mounted.path());
    let program = env!("CARGO_BIN_EXE_larder");
    let larder_on =
        |arguments: &[&str]| succeed(larder().args(arguments).current_dir(mounted.path()));
    let mut stranger = Command::new("setpriv");
    stranger.args(["--regid=500", "--clear-groups", "--", program]);
    let refused = fails(stranger.args(["rm", "-r", "t"]).current_dir(mounted.path()));
    assert!(refused.contains("no ids to store for user 0 and group 500"), "{refused}");

    // A stream is of the file system, not of the view of it.
    larder_on(&["subvolume", "create", "s"]);
    mounted.shell("cp -a t s/t");
    larder_on(&["subvolume", "snapshot", "-r", "s", "snap"]);
    let received = mounted.folder().join("received.img").display().to_string();
    succeed(larder().args(["mkfs", "-q", "-b", "1G", &received]));
    mounted.shell(&format!("{program} send -q snap | {program} receive -q {received}:/"));
    mounted.unmount();
    mounted.check();
    for (image, place) in [(mounted.image(), "s/t"), (received.into(), "snap/t")] {
        let kernel = KernelMount::open(&[image], "ro,subvolid=5");
        let seen = shell(
            &kernel.path().join(place),
            "stat -c %u:%g f; getfacl -n -c f | grep user:1; getcap -n c; stat -c %u:%g .",
        );
        assert_eq!(seen, "8:10\nuser:10:r--\nc cap_net_raw=ep [rootid=11]\n1:1\n", "{place}");
    }
}

#[test]
fn the_map_is_that_of_the_first_mount() {
    let mut mounted = with_files("echo x > f; chown 5:6 f", SHIFT);
    let owner = |mounted: &Mounted| {
        let metadata = fs::metadata(mounted.join("f")).unwrap();
        (metadata.uid(), metadata.gid())
    };
    let remount = |words: &str| {
        let mut command = larder();
        command.args(["mount", "-o", &format!("remount,{words}")]).arg(mounted.path());
        command.output().unwrap()
    };
    let refused = remount("map-users=200000:0:65536");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("only be set when mounting"), "{said}");
    assert!(!remount("squash=1:1").status.success());
    for words in ["ro", "rw", SHIFT] {
        let remounted = remount(words);
        assert!(remounted.status.success(), "{}", String::from_utf8_lossy(&remounted.stderr));
        assert_eq!(owner(&mounted), (100_005, 100_006), "{words}");
    }
    let further = mounted.folder().join("further");
    fs::create_dir(&further).unwrap();
    let mount = |options: &str| {
        let mut command = larder();
        command.args(["mount", "-o", options]).arg(mounted.image()).arg(&further);
        command
    };
    let said = fails(&mut mount("allow_other,map-users=1:0"));
    assert!(said.contains("all its mounts share that"), "{said}");
    succeed(&mut mount("allow_other"));
    assert_eq!(fs::metadata(further.join("f")).unwrap().uid(), 100_005);
    succeed(larder().arg("umount").arg(&further));
    mounted.unmount();
    for (words, expected) in [
        ("map-users=1:5/2:5", "map-users: id 5 is mapped twice"),
        ("map-users=1:5:0", "do not exist"),
        ("map-groups=nobody-knows:0", "no group has this name"),
        ("squash=root", "is not a user and a group"),
        ("map-users=", "'' is not a range"),
    ] {
        let mut command = larder();
        command.args(["mount", "-o", words]).arg(mounted.image()).arg(mounted.path());
        let said = fails(&mut command);
        assert!(said.contains(expected), "{words}: {said}");
    }
}
