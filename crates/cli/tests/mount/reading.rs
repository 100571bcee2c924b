//! Commands that read trees on a mount through its server: they show what the system's own commands
//! show.

use std::fs;
use std::process::{Command, Output};

use larder_testkit::Scratch;

use crate::on_mount::{fails, listing, make_tree};
use crate::support::{Mounted, as_nobody, assert_same_lines, larder, larder_in, shell, succeed};

/// A mount with a tree `t` of everything, and a subvolume in it.
fn with_tree() -> Mounted {
    let mounted = Mounted::new();
    fs::create_dir(mounted.join("t")).unwrap();
    make_tree(&mounted.join("t"));
    let program = larder().get_program().to_owned();
    let program = program.display();
    mounted.shell(&format!("{program} subvolume create t/sub; echo in > t/sub/file; mkdir t/.dot"));
    mounted.shell("touch t/.dot/hidden t/a/.hidden; ln -s a t/over");
    mounted
}

#[test]
fn listings_are_those_of_ls() {
    let mounted = with_tree();
    let program = larder().get_program().to_owned();
    let program = program.display();
    for (ours, system) in [
        ("ls t", "ls -1 t"),
        ("ls -R t", "ls -1R t"),
        ("ls -aR t t/a", "ls -1aR t t/a"),
        ("ls t/a/1", "ls t/a/1"),
        ("ls t/link", "ls t/link"),
        ("ls t/over/", "ls -1 t/over/"),
        ("ls -d t/a", "ls -d t/a"),
        ("ls .", "ls -1 ."),
    ] {
        let seen = mounted.shell(&format!("{program} {ours}"));
        assert_same_lines(&seen, &mounted.shell(&format!("LC_ALL=C {system}")));
    }
    // Columns have other widths, and numbers stand for names.
    let words = "sed -E 's/ +/ /g'";
    let seen = mounted.shell(&format!("{program} ls -laR t | {words}"));
    let expected = format!(
        "LC_ALL=C ls -lnaR --time-style='+%Y-%m-%d %H:%M:%S' t | grep -v '^total' | sed -E 's/^(.{{10}})[+]/\\1/' | {words}"
    );
    assert_same_lines(&seen, &mounted.shell(&expected));
    let said = fails(larder().arg("ls").arg(mounted.join("nothing")));
    assert!(said.contains("No such file"), "{said}");
    // What is mounted below would be missing.
    mounted.shell("mkdir t/below; mount -t tmpfs none t/below");
    let said = fails(larder().args(["ls", "-R"]).arg(mounted.join("t")));
    mounted.shell("umount t/below");
    assert!(said.contains("another file system is mounted at"), "{said}");
    mounted.finish();
}

#[test]
fn sizes_are_those_of_du() {
    let mounted = with_tree();
    // Some data waits for writeback. Where a file with several names counts depends on the order.
    mounted.shell(
        "rm t/a/b/uno; sync -f .; head -c 5000000 /dev/urandom > t/a/dirty; echo more >> t/a/7",
    );
    let program = larder().get_program().to_owned();
    let program = program.display();
    for arguments in [
        "t",
        "-s t",
        "-a t",
        "-d 1 t t/a",
        "-ad 2 t",
        "-hc t/a t/sub",
        "-m t",
        "-b t",
        "-a --apparent-size t",
        "t/a/b/medium9 t/link",
        ".",
    ] {
        let seen = mounted.shell(&format!("{program} du {arguments} | sort"));
        assert_same_lines(&seen, &mounted.shell(&format!("du {arguments} | sort")));
    }
    mounted.finish();
}

#[test]
fn archives_have_everything() {
    let mounted = with_tree();
    mounted.shell("rmdir t/.dot 2>/dev/null || true; head -c 700000 /dev/urandom > t/a/dirty");
    mounted.shell("mkdir u");
    let program = larder().get_program().to_owned();
    let unpack = format!("{} tar t | tar -x -C u --xattrs --xattrs-include='*'", program.display());
    mounted.shell(&unpack);
    assert_same_lines(&listing(&mounted.join("u")), &listing(&mounted.join("t")));
    // Data that a program wrote to memory reaches the archive.
    let script = "import mmap, sys
with open('t/mapped', 'w+b') as f:
    f.write(bytes(8192)); f.flush()
    m = mmap.mmap(f.fileno(), 8192); m[5000:5003] = b'new'
    print(__import__('subprocess').check_output([sys.argv[1], 'tar', 't/mapped']).count(b'new'))";
    let seen = crate::support::python(&mounted.path(), script, &[&program.to_string_lossy()]);
    assert_eq!(seen, "1\n");
    // An archive that is not complete has no end.
    let nowhere = larder().arg("tar").arg(mounted.folder()).output().unwrap();
    assert_eq!((nowhere.status.code(), nowhere.stdout.len()), (Some(1), 0));
    // One file, and a link.
    for name in ["a/1", "link"] {
        let line = format!("{} tar t/{name} | tar -t", program.display());
        let expected = format!("./{}\n", name.rsplit('/').next().unwrap());
        assert_eq!(mounted.shell(&line), expected);
    }
    mounted.finish();
}

#[test]
fn moves_between_subvolumes_and_into_the_mount() {
    let source = Scratch::new();
    make_tree(source.path());
    let mounted = Mounted::new();
    let program = larder().get_program().to_owned();
    let program = program.display();
    let path = source.path().display();
    mounted.shell(&format!("cp -a {path} expected; mkdir t"));
    mounted.shell(&format!(
        "{program} mv {path}/* t; {program} subvolume create sub; {program} mv t/a sub
        {program} mv sub/a sub/b; {program} mv sub/b t/a; {program} mv t renamed; ls -A sub
        touch -r expected renamed; chmod --reference=expected renamed"
    ));
    assert_eq!(shell(source.path(), "ls -A"), "");
    assert_same_lines(&listing(&mounted.join("renamed")), &listing(&mounted.join("expected")));
    // An existing directory is replaced only if it is empty.
    mounted.shell("mkdir -p sub/x/full one/x; touch sub/y; mkdir one/y");
    let said = fails(larder().arg("mv").arg(mounted.join("one/x")).arg(mounted.join("sub")));
    assert!(said.contains("Directory not empty"), "{said}");
    mounted.finish();
}

#[test]
fn the_root_of_a_mount_is_a_tree_too() {
    let mounted = Mounted::new();
    mounted.shell("mkdir d; touch d/file other; chmod 700 d other");
    succeed(larder().args(["chmod", "-R", "u=rwX,go=rX"]).arg(mounted.path()));
    succeed(larder().args(["chown", "7:8"]).arg(mounted.path()));
    let seen = mounted.shell("stat -c '%a %u:%g' . d d/file other");
    assert_eq!(seen, "755 7:8\n755 0:0\n644 0:0\n755 0:0\n");
    let said = fails(larder().args(["rm", "-r"]).arg(mounted.path()));
    assert!(said.contains("is mounted"), "{said}");
    mounted.finish();
}

#[test]
fn users_read_what_the_mount_lets_them() {
    let scratch = Scratch::new();
    shell(scratch.path(), "chmod 777 .");
    let program = larder_in(scratch.path());
    let program = program.display();
    let line = |line: &str| {
        let mut command = as_nobody("bash");
        let Output { status, stdout, stderr } =
            command.args(["-uc", line]).current_dir(scratch.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (status.code(), text(&stdout), text(&stderr))
    };
    let (code, _, said) = line(&format!(
        "mkdir m; {program} mount --create 500M i.img m && cd m && mkdir -p d/open d/listed d/locked &&
        touch d/open/file d/listed/file d/locked/file && echo secret > d/open/secret &&
        chmod 0 d/locked d/open/secret && chmod 444 d/listed"
    ));
    assert_eq!(code, Some(0), "{said}");
    let (code, seen, said) = line(&format!("{program} ls -R m/d"));
    assert_eq!(code, Some(1), "{seen}{said}");
    assert!(said.contains("d/locked: Permission denied"), "{said}");
    assert!(seen.contains("file\nsecret\n") && !seen.contains("locked:\nfile"), "{seen}");
    let (code, archive, said) =
        line(&format!("{program} tar m/d | tar -t; exit ${{PIPESTATUS[0]}}"));
    assert_eq!(code, Some(1), "{archive}{said}");
    assert!(said.contains("d/open/secret: Permission denied"), "{said}");
    assert!(archive.contains("./open/file") && !archive.contains("secret"), "{archive}");
    let (code, ..) = line(&format!("chmod -R u+rwX m/d; {program} umount m"));
    assert_eq!(code, Some(0));
    // The mount of root serves root only.
    let mut mounted = Mounted::unmounted();
    shell(mounted.folder(), "chmod 755 .");
    mounted.mount(&["-o", "allow_other", "--create", "1G"]);
    let program = larder_in(mounted.folder());
    for command in ["ls", "du", "tar"] {
        let mut nobody = as_nobody(&program);
        let said = fails(nobody.arg(command).arg(mounted.path()));
        assert!(said.contains("only from root"), "{said}");
    }
    mounted.finish();
}

#[test]
fn a_reader_that_stops_ends_the_walk() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir t; cd t; for d in $(seq 20); do mkdir $d; (cd $d; seq 1000 | xargs touch); done",
    );
    let program = larder().get_program().to_owned();
    for command in ["ls -R", "tar"] {
        let line =
            format!("{} {command} t | head -c 100 >/dev/null || test $? = 141", program.display());
        mounted.shell(&line);
    }
    let mut du = Command::new(program).args(["du", "-a"]).arg(mounted.join("t")).spawn().unwrap();
    du.kill().unwrap();
    du.wait().unwrap();
    mounted.finish();
}
