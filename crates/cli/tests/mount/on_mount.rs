//! Commands that change trees on a mount through its server: the results are those of the system's
//! own commands, and programs that use the mount see them.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use larder_testkit::Scratch;

use crate::support::{
    Mounted, as_nobody, assert_same_lines, larder, larder_in, python, shell, succeed, wait_until,
};

/// Everything that a copy of a tree keeps, in lines.
pub(crate) fn listing(tree: &Path) -> String {
    let line = "find . -printf '%P %y %m %U %G %s %n %T@ %l\\n' | sort
        find . -type f -exec md5sum {} + | sort -k2
        find . -print0 | sort -z | xargs -0 getfattr -h -d -m - 2>/dev/null | sed '/^$/d'
        find . ! -type f ! -type d ! -type l -exec stat -c '%n %t %T' {} + | sort
        find . -type f -links +1 -printf '%f %i\\n' | sort | awk '{ print $1, (n[$2] ? n[$2] : n[$2] = NR) }'";
    shell(tree, line)
}

/// A tree with one of everything.
pub(crate) fn make_tree(at: &Path) {
    let line = "mkdir -p a/b/c 'odd \"name\" \u{e9}' empty; chmod 750 a; chmod 1777 empty; chown 7:8 a/b
        for n in $(seq 300); do echo $n > a/$n; done
        for n in $(seq 40); do head -c $((n * 700)) /dev/urandom > a/b/medium$n; done
        head -c 3000000 /dev/urandom > a/b/c/large
        truncate -s 5M a/sparse; echo end | dd of=a/sparse bs=1 seek=3000000 conv=notrunc status=none
        truncate -s 1000 a/hole; : > a/nothing
        ln -s a/1 link; ln -s /nowhere a/dangling; mkfifo a/pipe; mknod a/null c 1 3; mknod a/disk b 7 9
        ln a/1 a/one; ln a/1 a/b/uno; cp /bin/true setuid; chown 9:10 setuid; chmod 6755 setuid
        setfattr -n user.word -v value a/2; setfattr -n user.word -v value a/b
        setfattr -n trusted.word -v value a/3; setfacl -m u:5:r a/4; setfacl -m d:g:6:rwx a/b/c
        touch -d '1960-01-01 00:00:00.5' a/5; touch -d '2200-02-02' a/b/c; touch -h -d 2001-01-01 link";
    shell(at, line);
}

/// Runs larder, which must fail; returns what it said.
#[track_caller]
pub(crate) fn fails(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

#[test]
pub(crate) fn copies_are_those_of_cp_and_tar() {
    let source = Scratch::new();
    make_tree(source.path());
    let mounted = Mounted::new();
    for name in ["cp", "ours", "untar"] {
        fs::create_dir(mounted.join(name)).unwrap();
    }
    let tree = |name: &str| mounted.join(name);
    succeed(Command::new("cp").args(["-aT"]).arg(source.path()).arg(tree("cp")));
    let parts = shell(source.path(), "ls -A");
    let parts = parts.lines().map(|name| source.path().join(name));
    succeed(larder().args(["cp", "-a"]).args(parts).arg(tree("ours")));
    let tar = "tar -c --xattrs --xattrs-include='*' --acls --sparse .";
    let program = larder().get_program().to_owned();
    let unpack = format!("{tar} | {} cp -a - {}", program.display(), tree("untar").display());
    shell(source.path(), &unpack);
    let times_of_top = |name: &str| {
        shell(&mounted.path(), &format!("chmod --reference=cp {name}; touch -r cp {name}"));
    };
    ["ours", "untar"].into_iter().for_each(times_of_top);
    assert_same_lines(&listing(&tree("ours")), &listing(&tree("cp")));
    assert_same_lines(&listing(&tree("untar")), &listing(&tree("cp")));
    mounted.finish();
}

#[test]
fn copies_overwrite_files_and_fill_directories() {
    let source = Scratch::new();
    shell(
        source.path(),
        "mkdir -p d/e; echo new > d/file; echo new > d/link; echo new > d/e/other",
    );
    let mounted = Mounted::new();
    mounted
        .shell("mkdir -p to/d; echo old > to/d/file; echo kept > to/d/kept; echo target > target");
    mounted.shell("ln -s ../../target to/d/link; ls to/d/e/other to/d/nothing || true");
    let mut open = File::open(mounted.join("to/d/file")).unwrap();
    succeed(larder().args(["cp", "-r"]).arg(source.path().join("d")).arg(mounted.join("to")));
    let seen =
        mounted.shell("cd to/d; cat file link kept e/other; stat -c %F link; cat ../../target");
    assert_eq!(seen, "new\nnew\nkept\nnew\nregular file\ntarget\n");
    let mut old = String::new();
    open.read_to_string(&mut old).unwrap();
    assert_eq!(old, "new\n", "it is the same file");
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    drop(open);
    // An archive may have a member twice: the later one counts.
    let program = larder().get_program().to_owned();
    let program = program.display();
    let archive = format!(
        "tar -cf a.tar -C d file; echo newer > d/file; tar -rf a.tar -C d file; {program} cp - {} < a.tar",
        mounted.join("to").display()
    );
    shell(source.path(), &archive);
    assert_eq!(mounted.shell("cat to/file"), "newer\n");
    // A directory is not replaced by a file, nor a file by a directory.
    let mut onto = larder();
    fails(onto.args(["cp", "-r"]).arg(source.path().join("d")).arg(mounted.join("target")));
    shell(source.path(), "echo file > e");
    mounted.shell("mkdir -p to/e/inside");
    let said = fails(larder().arg("cp").arg(source.path().join("e")).arg(mounted.join("to")));
    assert!(said.contains("directory"), "{said}");
    assert_eq!(
        mounted.shell("ls -A to | grep -v '^[def]' || true"),
        "file\n".replace("file\n", "")
    );
    mounted.finish();
}

#[test]
fn a_name_that_is_too_long_leaves_no_other_behind() {
    let source = Scratch::new();
    let script = "import io, tarfile
archive = tarfile.open('a.tar', 'w')
for name in ['n' * 300, 'good', 'o' * 300]:
    member = tarfile.TarInfo(name)
    member.size = 1
    archive.addfile(member, io.BytesIO(b'x'))
archive.close()";
    python(source.path(), script, &[]);
    let mounted = Mounted::new();
    let archive = File::open(source.path().join("a.tar")).unwrap();
    let said = fails(larder().args(["cp", "-"]).arg(mounted.path()).stdin(archive));
    assert_eq!(said.matches("at most 255 bytes").count(), 2, "{said}");
    assert_eq!(mounted.shell("ls -A"), "good\n");
    mounted.finish();
}

#[test]
fn new_files_inherit_what_their_directory_passes_on() {
    let source = Scratch::new();
    shell(
        source.path(),
        "mkdir -p d/e; echo 1 > d/file; echo 2 > d/e/file; head -c 9000 /dev/zero > d/long",
    );
    let mounted = Mounted::new();
    mounted.shell(
        "for n in system ours; do mkdir $n; chgrp 9 $n; chmod 2775 $n; setfacl -m d:u:5:rwx $n
            chattr +C $n; done",
    );
    for options in ["-r", "-a"] {
        let from = source.path().join("d");
        succeed(Command::new("cp").arg(options).arg(&from).arg(mounted.join("system")));
        succeed(larder().args(["cp", options]).arg(&from).arg(mounted.join("ours")));
        let list = |name: &str| {
            let line = "find d -printf '%P %y %M %U %G %s\\n' | sort; find d | sort | xargs getfacl -p; lsattr -R d | sort";
            shell(&mounted.join(name), line)
        };
        assert_same_lines(&list("ours"), &list("system"));
        mounted.shell("rm -r system/d ours/d");
        // GNU cp -a leaves the inherited setgid bit to a directory whose original has none.
        mounted.shell("chmod g-s system ours");
    }
    mounted.finish();
}

/// An inode and its permissions come by two commands, and other commands may be between them.
#[test]
fn no_copy_has_more_permissions_than_a_default_acl_gives() {
    let source = Scratch::new();
    shell(
        source.path(),
        "umask 0; touch $(seq 3000) plain; mkdir sub; touch sub/file; ln -s nowhere link
         mkfifo pipe over; mknod device c 1 3; chmod 644 pipe device 7 plain; chmod 755 sub",
    );
    let mounted = Mounted::new();
    for acl in ["u::rwx,g::rx,o::-", "u::rx,u:5:rwx,g::rwx,m::rx,o::-"] {
        mounted.shell(&format!(
            "for n in system ours; do mkdir $n; setfacl -d -m {acl} $n; cd $n
               mkfifo pipe over device; ln -s nowhere plain; ln -s nowhere link; cd ..; done",
        ));
        let from = source.path().join(".");
        let mut system = Command::new("cp");
        system.args(["-r", "--remove-destination"]);
        succeed(system.arg(&from).arg(mounted.join("system")));
        succeed(larder().args(["cp", "-r"]).arg(&from).arg(mounted.join("ours")));
        let list = |name: &str| {
            let line =
                "find . -printf '%P %y %M\n' | sort; find . ! -type l | sort | xargs getfacl";
            shell(&mounted.join(name), line)
        };
        assert_same_lines(&list("ours"), &list("system"));
        mounted.shell("rm -r system ours");
    }
    mounted.finish();
}

#[test]
fn files_of_an_archive_have_no_more_permissions_than_a_default_acl_gives() {
    let source = Scratch::new();
    shell(
        source.path(),
        "mkdir d; cd d; touch $(seq 3000); mkdir sub; touch sub/file; mkfifo pipe
         chmod 644 * sub/file; chmod 755 sub; tar -cf ../a.tar .",
    );
    let mounted = Mounted::new();
    mounted.shell(
        "for n in system ours; do mkdir $n; setfacl -d -m u::rwx,u:5:rwx,g::rx,o::- $n; done",
    );
    let path = source.path().join("a.tar");
    let mut tar = Command::new("tar");
    tar.args(["--no-same-permissions", "--no-same-owner", "-xf"]).arg(&path);
    succeed(tar.current_dir(mounted.join("system")));
    let list = |name: &str| {
        let line = "find . ! -type d -printf '%P %y %M\\n' | sort; find . ! -type d | sort | xargs getfacl";
        shell(&mounted.join(name), line)
    };
    // New ones, and those that replace others.
    for _ in 0..2 {
        let archive = File::open(&path).unwrap();
        succeed(larder().args(["cp", "-"]).arg(mounted.join("ours")).stdin(archive));
        assert_same_lines(&list("ours"), &list("system"));
    }
    mounted.finish();
}

#[test]
fn removed_trees_are_gone_and_open_files_go_on() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir -p t/a/b; for n in $(seq 3000); do echo $n > t/a/$n; done; echo x > t/a/b/open",
    );
    mounted.shell("ln t/a/1 outside; find t | wc -l; ls -lR t >/dev/null");
    let program = larder().get_program().to_owned();
    let program = program.display();
    mounted.shell(&format!("{program} subvolume create t/a/sub; echo y > t/a/sub/file"));
    let mut open = File::open(mounted.join("t/a/b/open")).unwrap();
    let inside = File::open(mounted.join("t/a/b")).unwrap();
    succeed(larder().args(["rm", "-r"]).arg(mounted.join("t")));
    assert_eq!(mounted.shell("ls -A; stat -c %h outside; cat outside"), "outside\n1\n1\n");
    let mut content = String::new();
    open.read_to_string(&mut content).unwrap();
    assert_eq!(content, "x\n");
    assert!(
        rustix::fs::openat(&inside, "open", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())
            .is_err()
    );
    drop((open, inside));
    mounted.shell(&format!("echo 2 > a; echo 3 > b; {program} rm a b; {program} rm -f a; ls -A"));
    let said = fails(larder().arg("rm").arg(mounted.join("nothing")));
    assert!(said.contains("No such file"), "{said}");
    mounted.finish();
}

#[test]
fn deep_trees_are_removed() {
    let mounted = Mounted::new();
    let script =
        "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\nopen('bottom', 'w')";
    python(&mounted.path(), script, &[]);
    succeed(larder().args(["chmod", "-R", "700"]).arg(mounted.join("d")));
    succeed(larder().args(["rm", "-r"]).arg(mounted.join("d")));
    assert_eq!(mounted.shell("ls -A"), "");
    mounted.finish();
}

#[test]
fn modes_and_owners_are_those_of_chmod_and_chown() {
    let mounted = Mounted::new();
    for name in ["system", "ours"] {
        fs::create_dir(mounted.join(name)).unwrap();
        make_tree(&mounted.join(name));
    }
    // What the kernel caches becomes untrue.
    mounted.shell("ls -lR system ours >/dev/null; getfacl -R system ours >/dev/null");
    let list = |name: &str| {
        shell(
            &mounted.join(name),
            "find . -printf '%P %y %M %U %G\\n' | sort; find . | sort | xargs -d '\\n' getfacl -P -p",
        )
    };
    for arguments in [
        &["chmod", "-R", "g+w,o-x,u+X"][..],
        &["chown", "-R", "77:88"],
        &["chmod", "-R", "u=rwX,go=rX"],
        &["chown", "-R", ":99"],
    ] {
        succeed(Command::new(arguments[0]).args(&arguments[1..]).arg(mounted.join("system")));
        succeed(larder().args(arguments).arg(mounted.join("ours")));
        assert_same_lines(&list("ours"), &list("system"));
    }
    for (arguments, name) in [
        (&["chmod", "640"][..], "link"),
        (&["chown", "5:6"], "link"),
        (&["chown", "-h", "7:8"], "link"),
    ] {
        succeed(
            Command::new(arguments[0]).args(&arguments[1..]).arg(mounted.join("system").join(name)),
        );
        succeed(larder().args(arguments).arg(mounted.join("ours").join(name)));
        assert_same_lines(&list("ours"), &list("system"));
    }
    mounted.finish();
}

#[test]
fn what_cannot_be_done_is_said() {
    let source = Scratch::new();
    shell(source.path(), "mkdir -p d/e; echo 1 > d/e/file; echo 2 > d/file");
    let from = source.path().join("d");
    let mounted = Mounted::with_size("256M");
    let program = larder().get_program().to_owned();
    let program = program.display();
    mounted.shell(&format!(
        "mkdir fixed there; touch fixed/file there/file; chattr +i fixed fixed/file
        {program} subvolume create sub; touch sub/file; {program} subvolume snapshot -r sub snap"
    ));
    for (at, reason) in [("fixed", "not permitted"), ("snap", "Read-only file system")] {
        let said = fails(larder().args(["cp", "-a"]).arg(&from).arg(mounted.join(at)));
        assert!(said.contains(reason) && said.lines().count() == 1, "{said}");
        let said = fails(larder().args(["rm", "-r"]).arg(mounted.join(at)));
        assert!(said.contains(reason), "{said}");
        let said = fails(larder().args(["chmod", "-R", "777"]).arg(mounted.join(at)));
        assert!(said.contains(reason), "{said}");
    }
    // A full disk.
    shell(source.path(), "head -c 400M /dev/urandom > big; echo small > small");
    let files = ["big", "small"].map(|name| source.path().join(name));
    let said = fails(larder().arg("cp").args(files).arg(mounted.join("there")));
    assert!(said.contains("No space left") && said.lines().count() <= 2, "{said}");
    mounted.shell("rm there/*; echo more > there/file");
    // Another file system below, a mount for reading, and another file system altogether.
    mounted.shell("mkdir -p t/below; mount -t tmpfs none t/below");
    let said = fails(larder().args(["rm", "-r"]).arg(mounted.join("t")));
    mounted.shell("umount t/below");
    assert!(said.contains("is mounted"), "{said}");
    mounted.shell("mkdir bound; mount --bind -o ro there bound");
    let said =
        fails(larder().arg("cp").arg(source.path().join("small")).arg(mounted.join("bound")));
    mounted.shell("umount bound");
    assert!(said.contains("Read-only"), "{said}");
    let said = fails(larder().args(["rm", "-r"]).arg(mounted.join("t/.")));
    assert!(said.contains("not removed"), "{said}");
    let said = fails(larder().args(["rm", "-r"]).arg(&from));
    assert!(said.contains("not on a mount of larder"), "{said}");
    let said =
        fails(larder().args(["cp", "-a"]).arg(mounted.join("there")).arg(mounted.join("there/in")));
    assert!(said.contains("itself"), "{said}");
    mounted.finish();
}

#[test]
fn users_may_do_what_the_mount_lets_them() {
    // The mount of root serves root only.
    let mut mounted = Mounted::unmounted();
    shell(mounted.folder(), "chmod 755 .");
    mounted.mount(&["-o", "allow_other", "--create", "1G"]);
    mounted.shell("mkdir -m 777 all; echo x > all/file; chmod 666 all/file");
    let said =
        fails(as_nobody(larder_in(mounted.folder())).arg("rm").arg(mounted.join("all/file")));
    assert!(said.contains("only from root"), "{said}");
    mounted.finish();
    // The user who mounted may do what the modes allow.
    let scratch = Scratch::new();
    shell(scratch.path(), "chmod 777 .");
    let program = larder_in(scratch.path());
    let program = program.display();
    let line = |line: &str| {
        let mut command = as_nobody("bash");
        command.args(["-uc", line]).current_dir(scratch.path()).output().unwrap()
    };
    let output = line(&format!(
        "mkdir m; {program} mount --create 500M i.img m && cd m && mkdir -p d/e locked && echo 1 > d/e/f &&
        setfattr -n user.a -v 1 d/e/f && head -c 100000 /dev/urandom > d/e/big && echo > d/e/read &&
        head -c 300000 /dev/urandom > d/e/long && chmod 400 d/e/long && mkdir -m 1755 d/sticky &&
        {program} cp -r d plain && diff -r d plain && test -k plain/sticky &&
        rm -rf plain && install -m 4755 /bin/true d/e/suid && install -m 2755 /bin/true d/e/sgid && chmod 444 d/e/read &&
        {program} cp -a d copy && diff -r d copy &&
        modes() {{ (cd $1/e; stat -c '%n %a %U:%G %Y' *); }} && test \"$(modes d)\" = \"$(modes copy)\" &&
        {program} chmod -R go-rwx copy &&
        cat copy/e/f && getfattr -n user.a copy/e/f && stat -c '%U %a' copy/e/f &&
        touch locked/file && chmod 555 locked && {program} rm -r copy && ls -A"
    ));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        said.starts_with("1\n") && said.contains("nobody 600") && said.ends_with("d\nlocked\n"),
        "{said}"
    );
    for refused in ["rm -r m/locked", "cp -a m/d m/locked", "chown -R 0:0 m/d"] {
        let output = line(&format!("{program} {refused}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{refused}: {said}");
        let reasons = ["Permission denied", "not permitted"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{refused}: {said}");
    }
    assert!(line("chmod 755 m/locked; ls m/locked/file").status.success());
    assert!(line(&format!("{program} umount m && {program} check i.img")).status.success());
}

#[test]
fn a_signal_ends_a_removal_and_the_rest_stays() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir t; cd t; for d in $(seq 40); do mkdir $d; (cd $d; seq 600 | xargs touch); done",
    );
    let mut command = larder();
    let mut removal =
        command.args(["rm", "-r"]).arg(mounted.join("t")).stderr(Stdio::null()).spawn().unwrap();
    wait_until("something is removed", || {
        fs::read_dir(mounted.join("t")).map_or(0, Iterator::count) < 40
    });
    let pid = rustix::process::Pid::from_child(&removal);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    removal.wait().unwrap();
    succeed(larder().args(["rm", "-rf"]).arg(mounted.join("t")));
    assert_eq!(mounted.shell("ls -A"), "");
    mounted.finish();
}
