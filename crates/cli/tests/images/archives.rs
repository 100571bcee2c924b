//! Archives and trees, as tar and cp take them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use larder_testkit::Scratch;

use crate::support::succeed;

fn run(program: &str, line: &str, folder: &Path) -> Output {
    let mut command = Command::new(program);
    let output = command.args(line.split(' ')).current_dir(folder).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {line}: {said}");
    output
}

/// The ACLs of everything below a directory.
fn acls(folder: &Path) -> String {
    let output = run("getfacl", "-cpn . file sub sub/deep sub/inside", folder);
    String::from_utf8(output.stdout).expect("names here are text")
}

/// A directory with ACLs, and an image.
fn tree_and_image(scratch: &Scratch) -> (std::path::PathBuf, String) {
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("sub/deep")).expect("made");
    fs::write(tree.join("file"), "bread").expect("written");
    fs::write(tree.join("sub/inside"), "butter").expect("written");
    run("setfacl", "-m u:4321:rx,g:77:w file", &tree);
    run("setfacl", "-d -m u:4322:rx,m::rwx sub", &tree);
    run("setfacl", "-m u:0:r sub/inside", &tree);
    let image = scratch.path().join("image");
    succeed(&format!("mkfs -q -b 300M {}", image.display()));
    (tree, image.display().to_string())
}

#[test]
fn acls_stay_in_archives_in_both_directions() {
    let scratch = Scratch::new();
    let (tree, image) = tree_and_image(&scratch);
    let wanted = acls(&tree);
    assert!(wanted.contains("user:4321:r-x") && wanted.contains("default:user:4322:r-x"));
    // From larder to GNU tar.
    succeed(&format!("cp -a {}/. {image}:/", tree.display()));
    let archive = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["tar", &format!("{image}:/")])
        .output()
        .expect("larder starts");
    assert!(archive.status.success());
    fs::write(scratch.path().join("larder.tar"), archive.stdout).expect("written");
    for options in ["--acls", "--acls --xattrs --xattrs-include=*"] {
        let unpacked = scratch.path().join("unpacked");
        fs::create_dir(&unpacked).expect("made");
        run("tar", &format!("{options} -p -xf ../larder.tar"), &unpacked);
        assert_eq!(acls(&unpacked), wanted, "{options}");
        fs::remove_dir_all(unpacked).expect("removed");
    }
    // From GNU tar to larder, with numbers and with names.
    for options in ["--acls --numeric-owner", "--acls"] {
        let made = run("tar", &format!("{options} -cf - ."), &tree);
        succeed(&format!("mkdir {image}:/gnu"));
        let mut unpack = Command::new(env!("CARGO_BIN_EXE_larder"));
        let unpack = unpack.args(["cp", "-a", "-", &format!("{image}:/gnu")]);
        let mut unpack = unpack.stdin(Stdio::piped()).spawn().expect("larder starts");
        let mut input = unpack.stdin.take().expect("it is piped");
        std::io::Write::write_all(&mut input, &made.stdout).expect("it reads");
        drop(input);
        assert!(unpack.wait().expect("it ends").success());
        let out = scratch.path().join("out");
        succeed(&format!("cp -a {image}:/gnu {}", out.display()));
        assert_eq!(acls(&out), wanted, "{options}");
        fs::remove_dir_all(out).expect("removed");
        succeed(&format!("rm -r {image}:/gnu"));
    }
}

#[test]
fn a_directory_that_ends_with_a_dot_is_copied_as_its_content() {
    let scratch = Scratch::new();
    let (tree, image) = tree_and_image(&scratch);
    let tree = tree.display();
    for (number, source) in [format!("{tree}/."), format!("{tree}/./"), format!("{tree}/sub/..")]
        .into_iter()
        .enumerate()
    {
        succeed(&format!("mkdir {image}:/in{number}"));
        succeed(&format!("cp -a {source} {image}:/in{number}"));
        assert_eq!(succeed(&format!("ls {image}:/in{number}")), "file\nsub\n", "{source}");
    }
    // Within the image.
    succeed(&format!("mkdir {image}:/within"));
    succeed(&format!("cp -a {image}:/in0/. {image}:/within"));
    assert_eq!(succeed(&format!("ls {image}:/within")), "file\nsub\n");
    // Into another image, and out of it.
    let other = scratch.path().join("other").display().to_string();
    succeed(&format!("mkfs -q -b 300M {other}"));
    succeed(&format!("cp -a {image}:/in0/./ {other}:/"));
    assert_eq!(succeed(&format!("ls {other}:/")), "file\nsub\n");
    let out = scratch.path().join("out");
    fs::create_dir(&out).expect("made");
    succeed(&format!("cp -a {image}:/in0/sub/. {}", out.display()));
    assert!(out.join("inside").exists() && out.join("deep").exists());
    // A name without a dot stays a name.
    succeed(&format!("cp -a {tree}/sub/ {image}:/within/sub"));
    assert_eq!(succeed(&format!("ls {image}:/within/sub")), "deep\ninside\nsub\n");
}

#[test]
fn what_comes_before_the_damage_of_an_archive_is_unpacked() {
    let scratch = Scratch::new();
    let image = scratch.path().join("image").display().to_string();
    succeed(&format!("mkfs -q -b 300M {image}"));
    fs::write(scratch.path().join("first"), "bread").expect("written");
    fs::write(scratch.path().join("second"), "butter").expect("written");
    let whole = run("tar", "-cf - first second", scratch.path()).stdout;
    // It ends in the middle of the second header; and that header is damaged.
    let mut damaged = whole.clone();
    damaged[1030] ^= 1;
    for (number, archive) in [&whole[..1100], &damaged].into_iter().enumerate() {
        let path = scratch.path().join("archive");
        fs::write(&path, archive).expect("written");
        succeed(&format!("mkdir {image}:/in{number}"));
        let mut unpack = Command::new(env!("CARGO_BIN_EXE_larder"));
        let unpack = unpack.args(["cp", "-", &format!("{image}:/in{number}")]);
        let output = unpack.stdin(fs::File::open(&path).expect("it is there")).output();
        let output = output.expect("larder starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot read the archive after byte"), "{said}");
        assert!(!said.contains("lost"), "{said}");
        assert_eq!(succeed(&format!("cat {image}:/in{number}/first")), "bread");
    }
}

/// A copy of an archive without `-a` is like one of its files: a default ACL says who may use what is
/// made.
#[test]
fn what_an_archive_makes_inherits_acls() {
    let scratch = Scratch::new();
    let tree = scratch.path().join("tree");
    for name in ["there/named/deep", "implied/deep"] {
        fs::create_dir_all(tree.join(name)).expect("made");
    }
    fs::write(tree.join("there/named/file"), "bread").expect("written");
    run("chmod", "2750 there/named", &tree);
    run("tar", "-cf ../archive there implied/deep", &tree);
    // A directory for cp, and one in an image.
    let theirs = scratch.path().join("theirs");
    fs::create_dir_all(theirs.join("there")).expect("made");
    run("setfacl", "-R -d -m u:4322:rwx,g::rx,o:- .", &theirs);
    let image = scratch.path().join("image").display().to_string();
    succeed(&format!("mkfs -q -b 300M {image}"));
    succeed(&format!("cp -a {}/. {image}:/", theirs.display()));
    run("cp", "-rT . ../theirs", &tree);
    let archive = File::open(scratch.path().join("archive")).expect("it is there");
    let larder = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["cp", "-", &format!("{image}:/")])
        .stdin(archive)
        .status()
        .expect("larder starts");
    assert!(larder.success());
    let copied = scratch.path().join("copied");
    fs::create_dir(&copied).expect("made");
    succeed(&format!("cp -a {image}:/. {}", copied.display()));
    let acls = |folder: &Path| {
        let names = ". there there/named there/named/file there/named/deep implied implied/deep";
        let output = run("getfacl", &format!("-cpn {names}"), folder);
        String::from_utf8(output.stdout).expect("names here are text")
    };
    let wanted = acls(&theirs);
    assert!(wanted.matches("default:user:4322:rwx").count() > 5, "{wanted}");
    assert_eq!(acls(&copied), wanted);
}
