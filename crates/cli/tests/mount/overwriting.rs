//! `larder cp` onto files that are there, as cp does it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use larder_testkit::{Scratch, effort};

use crate::support::{Mounted, assert_same_lines, larder, shell};

/// Files in the way of copies, in the present directory.
const IN_THE_WAY: &str = "
    echo secret > plain; chown 1000:1000 plain; chmod 640 plain; setfattr -n user.a -v b plain
    setfacl -m u:2000:r plain; ln plain hard
    echo alone > alone; chown 1000:1001 alone; chmod 600 alone; setfattr -n user.c -v d alone
    setfacl -m u:2000:rw alone
    echo t > target; ln -s target link; ln -s nowhere dangling; echo d > device-sized
    truncate -s 300K device-sized; mkdir -p tree/sub; echo x > tree/sub/f; chmod 600 tree/sub/f
    ln tree/sub/f tree/other; mkdir one two; echo 1 > one/same; echo 2 > two/same; mkdir into";

/// What is below the present directory.
const LISTING: &str = "
    find . | LC_ALL=C sort | while read -r f; do
      stat -c '%n %A %u:%g %h %F %s' $f; getfattr -h -d -m user $f; test -L $f || getfacl -pn $f
      test -f $f && cat $f; done; true";

/// Copies onto them. `$CP` is the program, and `$S` has the sources.
const COPIES: &str = "
    try() { $CP \"$@\" 2> /dev/null && echo works || echo fails; }
    try $S/new plain; try $S/long hard; try -a $S/attributed alone; try $S/new link
    try $S/new dangling; try $S/new device-sized; try -a $S/attributed target
    try -r $S/tree .; try -a $S/tree/sub/f tree/other; try one/same two/same into
    try $S/new tree; try $S/new nowhere/f; try plain hard; try -a $S/new into/../plain";

/// Sources of copies, in the present directory.
const SOURCES: &str = "
    mkdir s; cd s; echo new > new; head -c 500000 /dev/zero | tr '\\0' l > long; mkdir -p tree/sub
    echo attributed > attributed; chown 7:8 attributed; chmod 4711 attributed
    setfattr -n user.e -v f attributed; setfacl -m u:2001:x attributed
    echo copied > tree/sub/f; chmod 644 tree/sub/f";

#[test]
fn files_in_the_way_are_overwritten_as_by_cp() {
    let mounted = Mounted::new();
    let larder = env!("CARGO_BIN_EXE_larder");
    let run = |name: &str, program: &str, sources: &Path| {
        let variables = format!("CP='{program}' S={}", sources.display());
        let script = format!("mkdir {name}; cd {name}; {IN_THE_WAY}\n{variables}\n{COPIES}\n");
        let done = mounted.shell(&script);
        (done, mounted.shell(&format!("cd {name}; {LISTING}")))
    };
    let elsewhere = Scratch::new();
    shell(elsewhere.path(), SOURCES);
    mounted.shell(SOURCES);
    // Sources on another file system, and on the same mount, which share their data.
    for (number, sources) in [elsewhere.path().join("s"), mounted.join("s")].iter().enumerate() {
        let (cp, expected) = run(&format!("cp{number}"), "cp", sources);
        let (ours, found) = run(&format!("larder{number}"), &format!("{larder} cp"), sources);
        assert_same_lines(&ours, &cp);
        assert_same_lines(&found, &expected);
    }
    mounted.finish();
}

#[test]
fn files_in_an_image_are_overwritten_as_by_cp() {
    let mut mounted = Mounted::new();
    mounted.shell(IN_THE_WAY);
    let before = mounted.shell("stat -c '%A %u:%g %h' plain alone; getfacl -pn alone");
    mounted.unmount();
    let image = mounted.image().display().to_string();
    let elsewhere = Scratch::new();
    shell(elsewhere.path(), SOURCES);
    let from = |name: &str| elsewhere.path().join("s").join(name).display().to_string();
    let cp = |words: &[&str]| larder().arg("cp").args(words).output().unwrap().status.success();
    let to = |name: &str| format!("{image}:/{name}");
    assert!(cp(&[&from("new"), &to("plain")]) && cp(&[&from("long"), &to("alone")]));
    assert!(cp(&[&from("new"), &to("link")]) && !cp(&[&from("new"), &to("dangling")]));
    // Within the image, and out of it onto a file and onto a planted link.
    assert!(cp(&[&to("one/same"), &to("two/same")]) && cp(&[&to("one/same"), &to("hard")]));
    assert!(!cp(&[&to("hard"), &to("plain")]), "they are the same file");
    shell(
        elsewhere.path(),
        "echo old > out; chmod 600 out; ln out name; mkdir d; echo kept > kept; ln -s ../kept d/new",
    );
    let outside = |name: &str| elsewhere.path().join(name).display().to_string();
    assert!(cp(&[&to("one/same"), &outside("out")]));
    assert!(cp(&[&from("new"), &to("tree/new")]) && cp(&["-r", &to("tree/new"), &outside("d")]));
    let listed = shell(
        elsewhere.path(),
        "cat name; stat -c '%a %h' out; cat kept d/new; test ! -L d/new; echo",
    );
    assert_eq!(listed, "1\n600 2\nkept\nnew\n\n");
    mounted.mount(&[]);
    let after = mounted.shell("stat -c '%A %u:%g %h' plain alone; getfacl -pn alone");
    assert_same_lines(&after, &before);
    let content = "cat plain target; cmp hard plain; test -L link; wc -c < alone; cat two/same";
    assert_eq!(mounted.shell(content), "1\nnew\n500000\n1\n");
    mounted.finish();
}

#[test]
fn what_takes_the_place_of_a_source_is_not_copied() {
    let mounted = Mounted::new();
    let elsewhere = Scratch::new();
    fs::write(elsewhere.path().join("secret"), "secret").unwrap();
    shell(elsewhere.path(), "mkdir tree; echo own > tree/f; ln -s ../secret tree/link");
    // A program exchanges a file and a link while the tree is copied, and delays show it.
    let script = "import ctypes, os, sys
os.chdir(sys.argv[1]); libc = ctypes.CDLL(None)
while os.path.exists('../go'): libc.renameat2(-100, b'f', -100, b'link', 2)";
    fs::write(elsewhere.path().join("go"), "").unwrap();
    let mut exchange = Command::new("/usr/bin/python3");
    let tree = elsewhere.path().join("tree");
    let mut exchange = exchange.args(["-c", script]).arg(&tree).spawn().unwrap();
    for round in 0..20 {
        let copy = mounted.join(format!("copy{round}"));
        // Either is right: a copy of one of the states, or an error.
        let _ = larder().args(["cp", "-a"]).arg(&tree).arg(&copy).output().unwrap();
        let found = "find . -type f -exec grep -l secret {} +";
        assert_eq!(mounted.shell(&format!("{found} || true")), "");
    }
    fs::remove_file(elsewhere.path().join("go")).unwrap();
    exchange.wait().unwrap();
    mounted.finish();
}

/// Exchanges names in pairs until the file `go` in the mount is gone.
fn exchanging(mounted: &Mounted, directory: &str, pairs: &[&str]) -> Child {
    let script = "import ctypes, os, sys
os.chdir(sys.argv[1]); libc = ctypes.CDLL(None); names = [os.fsencode(it) for it in sys.argv[3:]]
while os.path.exists(sys.argv[2]):
    for a, b in zip(names[::2], names[1::2]): libc.renameat2(-100, a, -100, b, 2)";
    fs::write(mounted.join("go"), "").unwrap();
    let mut program = Command::new("/usr/bin/python3");
    let program = program.args(["-c", script]).arg(mounted.join(directory));
    program.arg(mounted.join("go")).args(pairs).spawn().unwrap()
}

/// Of a tree that users change meanwhile, a file gets the content and the attributes of one
/// original: never the content of a file that only root may read, and another owner.
#[test]
fn what_takes_the_place_of_a_source_on_a_mount_is_not_copied_over_a_file() {
    let mounted = Mounted::new();
    mounted.shell("mkdir root tree tree/d; ln -s ../root tree/link");
    mounted.shell("for i in $(seq 30); do echo own > tree/d/$i; echo secret > root/$i; done");
    mounted.shell("chmod 600 root/*; echo own > tree/d/a; cp -r tree copies; chown -R 1000 tree");
    mounted.shell("chown -R 1000 copies; cp -a root/1 tree/d/b; echo own > copies/d/b");
    let mut exchange = exchanging(&mounted, "tree", &["d", "link", "d/a", "d/b"]);
    let from = mounted.join("tree").join(".");
    for _ in 0..20 {
        // Either is right: a copy of one of the states, or an error.
        let _ =
            larder().args(["cp", "-a"]).arg(&from).arg(mounted.join("copies")).output().unwrap();
        let found = "find copies -type f -user 1000 -exec grep -l secret {} +";
        assert_eq!(mounted.shell(&format!("{found} || true")), "");
    }
    mounted.shell("rm go");
    exchange.wait().unwrap();
    assert_eq!(mounted.shell("find root -type f ! -user 0 -o -type f ! -perm 600"), "");
    mounted.finish();
}

/// Attributes of a copy go to the file that has the content, and not to one that takes its place.
#[test]
fn what_takes_the_place_of_a_copy_keeps_its_owner() {
    let mounted = Mounted::new();
    mounted.shell("mkdir small large; for i in $(seq 40); do echo own > small/$i; done");
    // Too large to be kept in memory until a copy is complete.
    mounted.shell("for i in $(seq 40); do head -c 3M /dev/urandom > large/$i; done");
    mounted.shell("chown -R 1000 small large");
    let pairs: Vec<String> =
        (1..=40).flat_map(|name| [format!("{name}"), format!("root/{name}")]).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    let elsewhere = Scratch::new();
    shell(elsewhere.path(), &format!("cp -a {} .", mounted.join("large").display()));
    let large = elsewhere.path().join("large");
    for (from, copies) in
        [(mounted.join("small"), "cp -a small copies"), (large, "mkdir copies; chown 1000 copies")]
    {
        for _ in 0..4 * effort() {
            mounted.shell(&format!("rm -rf copies; {copies}; mkdir copies/root"));
            mounted.shell("umask 077; for i in $(seq 40); do echo secret > copies/root/$i; done");
            let mut exchange = exchanging(&mounted, "copies", &pairs);
            let mut copy = larder();
            let _ =
                copy.args(["cp", "-a"]).arg(from.join(".")).arg(mounted.join("copies")).output();
            mounted.shell("rm go");
            exchange.wait().unwrap();
            let found = "find copies -type f -user 1000 -exec grep -l secret {} +";
            assert_eq!(mounted.shell(&format!("{found} || true")), "", "{}", from.display());
        }
    }
    mounted.finish();
}
