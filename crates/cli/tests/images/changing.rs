//! The same commands on a mount and on an image that is not mounted: those of the system and those
//! of Larder have the same results, and print the same.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::slice::from_ref;

use larder_testkit::content::Content;
use larder_testkit::manifest::Timestamp;
use larder_testkit::{ImageSpec, KernelImage, KernelMount, Manifest, Scratch, assert_same, oracle};

/// One side: where `@` in a command leads.
struct Side<'s> {
    program: &'s str,
    place: String,
}

impl Side<'_> {
    /// Runs a command of `text`, its words separated by blanks, `~` for a blank in a word. A umask
    /// may come first: `077:`.
    fn run(&self, text: &str) -> Output {
        let (umask, text) = text.split_once(": ").unwrap_or(("022", text));
        let word = |word: &str| match word.strip_prefix('@') {
            Some(path) => format!("{}{path}", self.place),
            None => word.replace('~', " "),
        };
        let mut words: Vec<String> = text.split(' ').map(word).collect();
        if !self.program.is_empty() {
            words.insert(0, self.program.to_owned());
            words.retain(|word| word != "btrfs");
        }
        let with_umask = ["-c", "umask $0 && exec \"$@\"", umask];
        Command::new("sh").args(with_umask).args(words).output().expect("it starts")
    }
}

fn image() -> KernelImage {
    KernelImage::build(&ImageSpec::new("changing"), &Content::new(61))
}

fn check(image: &KernelImage) {
    oracle::check(image.devices(), true).expect("btrfs check finds nothing");
    let larder = env!("CARGO_BIN_EXE_larder");
    let checked = Command::new(larder).arg("check").arg(&image.devices()[0]).output();
    let checked = checked.expect("larder starts");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

/// Times of the same change are not the same on both sides, unless the command sets them.
fn manifest(image: &KernelImage) -> Manifest {
    let mount = image.mount("ro,noatime");
    let mut manifest = Manifest::of_tree(mount.path());
    for entry in manifest.entries.values_mut() {
        (entry.ctime, entry.otime) = Default::default();
        for time in [&mut entry.atime, &mut entry.mtime] {
            if time.seconds > 1_700_000_000 {
                *time = Timestamp::default();
            }
        }
    }
    manifest
}

/// Changes on both sides, then questions whose answers are compared.
fn same(changes: &[&str], questions: &[&str]) {
    let [theirs, ours] = [image(), image()];
    let ours_side = Side {
        program: env!("CARGO_BIN_EXE_larder"),
        place: format!("{}:", ours.devices()[0].display()),
    };
    let (mut expected, mut answers) = (Vec::new(), Vec::new());
    {
        let mount = theirs.mount("noatime");
        let side = Side { program: "", place: mount.path().display().to_string() };
        expected.extend(changes.iter().map(|text| side.run(text).status.success()));
        answers.extend(questions.iter().map(|text| side.run(text).stdout));
    }
    for (text, expected) in changes.iter().zip(expected) {
        let done = ours_side.run(text);
        assert_eq!(done.status.success(), expected, "{text}: {done:?}");
    }
    for (text, expected) in questions.iter().zip(answers) {
        let answer = ours_side.run(text).stdout;
        let [answer, expected] =
            [answer, expected].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert_eq!(without_place(&answer), without_place(&expected), "{text}");
    }
    check(&ours);
    assert_same(&manifest(&theirs), &manifest(&ours));
}

/// Names of files without the mount point.
fn without_place(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("# file: ") {
        Some(path) => format!("# file: {}", path.rsplit('/').next().unwrap_or(path)),
        None => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn modes_and_owners() {
    same(
        &[
            "mkdir -p @/made/a/b",
            "mkdir -p -m 2751 @/made/a/c",
            "mkdir -m u=rwx,go= @/made/private",
            "mkdir @/made/private",
            // Whole sectors: the kernel may write zeros to a sector that a file ends in.
            "truncate -s 8k @/made/a/file",
            "truncate -s +4096 @/made/a/file",
            "truncate -s %8k @/made/a/file",
            "truncate -s <4k @/made/a/file",
            "truncate -c -s 7 @/made/missing",
            "truncate -s 100 @/made/a/b/small",
            "ln -s a/file @/made/link",
            "ln -s other @/made/link",
            "ln -sf a/b @/made/link",
            "ln @/made/a/file @/made/hard",
            "ln @/made/a/file @/made/hard",
            "ln -f @/made/a/file @/made/hard",
            "ln -f @/made/a/b/small @/made/hard",
            "chmod 4755 @/made/hard",
            "chmod u+s,g-rx,o=u @/made/a/file",
            "chmod -R u=rwX,go=rX @/made/a",
            "chmod 1777 @/made/private",
            "chmod -w @/made/a/b",
            "chmod 600 @/made/link",
            "chmod 644 @/made/missing",
            "chmod 4777 @/made/a/b/small",
            "chown 1000:2000 @/made/a/b/small",
            "chown -h 5 @/made/link",
            "chown -R :77 @/made",
            "chown 3:4 @/made/link",
            "rm -f @/made/missing",
            "rm @/made/missing",
            "rm @/made/private",
            "rm -r @/made/private",
            "btrfs subvolume create @/made/tree",
            "mkdir @/made/tree/folder",
            "btrfs subvolume create @/made/tree/folder/nested",
            "mkdir @/made/tree/folder/nested/folder",
            "rm @/made/tree",
            "rm -r @/made/tree",
        ],
        &["stat -c %a~%n @/nothing"],
    );
}

#[test]
fn copies_share_data() {
    let image = image();
    let side = Side {
        program: env!("CARGO_BIN_EXE_larder"),
        place: format!("{}:", image.devices()[0].display()),
    };
    for (text, succeeds) in [
        ("cp /bin/bash @/original", true),
        ("reflink @/original @/copy", true),
        ("truncate -s 7 @/small", true),
        ("reflink @/small @/copy", true),
        ("reflink @/original @/original", false),
        ("reflink @/missing @/copy", false),
        ("reflink @/original /tmp/larder-elsewhere", false),
        ("truncate -s 0 @/empty", true),
        ("reflink @/empty @/nothing", true),
        ("reflink @/original @/small", true),
    ] {
        let done = side.run(text);
        assert_eq!(done.status.success(), succeeds, "{text}: {done:?}");
    }
    check(&image);
    let mount = image.mount("ro");
    let read = |name: &str| std::fs::read(mount.path().join(name)).expect("the kernel reads it");
    assert_eq!(read("copy"), [0; 7]);
    assert_eq!(read("small"), std::fs::read("/bin/bash").expect("a shell"));
    let extents = Command::new("filefrag").arg("-v").arg(mount.path().join("small")).output();
    let extents = extents.expect("filefrag starts").stdout;
    assert!(String::from_utf8_lossy(&extents).contains("shared"));
    assert!(read("nothing").is_empty());
}

#[test]
fn times() {
    same(
        &[
            "mkdir @/times",
            "touch @/times/now",
            "touch -d 2021-02-03T04:05:06.789Z @/times/then",
            "touch -a -d @-1 @/times/then",
            "touch -m -d @1234567890 @/times/now",
            "touch -c @/times/missing",
            "ln -s then @/times/link",
            "touch -h -d @86400 @/times/link",
            "touch -r @/times/then @/times/same",
            "touch -d @1000000000 @/times/link",
            "touch -d yesterday-ish @/times/bad",
        ],
        &[],
    );
}

#[test]
fn attributes_and_properties() {
    same(
        &[
            "mkdir @/attributes",
            "truncate -s 1 @/attributes/file",
            "setfattr -n user.plain -v a~plain~value @/attributes/file",
            "setfattr -n user.hex -v 0x000a0d22ff @/attributes/file",
            "setfattr -n user.base -v 0sAAECAwQ= @/attributes/file",
            "setfattr -n user.quoted -v \"a\\\"\\\\b\\101\\012\" @/attributes/file",
            "setfattr -n user.empty @/attributes/file",
            "setfattr -n trusted.secret -v x @/attributes/file",
            "setfattr -n bogus.name -v x @/attributes/file",
            "setfattr -n user.bad -v 0xabc @/attributes/file",
            "setfattr -x user.base @/attributes/file",
            "setfattr -x user.base @/attributes/file",
            "ln -s file @/attributes/link",
            "setfattr -h -n trusted.link -v x @/attributes/link",
            "setfattr -h -n user.link -v x @/attributes/link",
            "btrfs property set @/attributes compression zstd",
            "btrfs property set @/attributes/file compression bogus",
            "btrfs property set @/attributes/file compression lzo",
            "btrfs property set @/attributes/file ro true",
            "btrfs property set @/ label a~new~label",
            "mkdir @/attributes/below",
        ],
        &[
            "getfattr @/attributes/file",
            "getfattr -d @/attributes/file",
            "getfattr -d -m - @/attributes/file",
            "getfattr -d -e hex @/attributes/file",
            "getfattr -d -e base64 @/attributes/file",
            "getfattr -d -m ^trusted @/attributes/link",
            "getfattr -h -d -m ^trusted @/attributes/link",
            "getfattr -n user.hex @/attributes/file",
            "getfattr -n user.missing @/attributes/file",
            "getfattr --only-values -n user.quoted @/attributes/file",
            "getfattr -d -m - @/attributes/below",
            "btrfs property get @/attributes/file",
            "btrfs property get @/attributes/file compression",
            "btrfs property get @/",
            "btrfs property get @/ label",
            "btrfs property get -t s @/",
            "btrfs property list @/",
            "btrfs property list @/attributes",
        ],
    );
}

/// For the owner, user 1000, the group, the mask and others.
const ACL: &str = "0x020000000100_0700ffffffff_02000700e8030000_04000500ffffffff_\
                   10000700ffffffff_20000500ffffffff";

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("the mode is set");
}

/// A umask removes permissions from new inodes, but not if a default ACL does.
#[test]
fn permissions_of_new_files() {
    let acl = ACL.replace('_', "");
    let scratch = Scratch::new();
    let source = scratch.path().display().to_string();
    for (name, mode) in [("source", 0o2755), ("source/inner", 0o705)] {
        std::fs::create_dir(scratch.path().join(name)).expect("a folder");
        set_mode(&scratch.path().join(name), mode);
    }
    std::fs::write(scratch.path().join("file"), "content").expect("a file");
    set_mode(&scratch.path().join("file"), 0o4666);
    let narrow = acl.replace("10000700", "10000500");
    let set = |value: &str, name: &str| {
        format!("setfattr -n system.posix_acl_default -v {value} @/{name}")
    };
    let (wide, narrow) = (set(&acl, "wide"), set(&narrow, "narrow"));
    let mut changes = vec!["mkdir @/wide @/narrow @/plain", &wide, &narrow];
    let made: Vec<String> = ["plain", "wide", "narrow"]
        .iter()
        .flat_map(|folder| {
            [
                "mkdir @/F/usual",
                "077: mkdir @/F/private",
                "077: mkdir -p @/F/deep/deeper/deepest",
                "777: mkdir -p @/F/none/all",
                "mkdir -m 775 @/F/shared",
                "mkdir -m 1777 @/F/sticky",
                "mkdir -m 2770 @/F/group",
                "mkdir -m g-s,o= @/F/symbolic",
                "027: mkdir -m a=rwx @/F/all",
                "027: mkdir -m +t @/F/plus",
                "027: mkdir -p -m 777 @/F/p/q",
                "touch @/F/file",
                "077: touch @/F/secret",
                "000: truncate -s 4k @/F/open",
                "btrfs subvolume create @/F/subvolume",
                "007: btrfs subvolume create @/F/for-the-group",
                "027: cp -r %/source @/F/copied",
                "000: cp %/file @/F/open-copy",
                "027: cp %/file @/F/copy",
            ]
            .map(|text| text.replace("@/F", &format!("@/{folder}")).replace('%', &source))
        })
        .collect();
    changes.extend(made.iter().map(String::as_str));
    changes.push("mkdir -p @/");
    same(&changes, &[]);
}

/// A copy does not keep ACLs that it inherits and the original does not have.
#[test]
fn copies_have_the_acls_of_the_original() {
    let scratch = Scratch::new();
    let source = scratch.path().join("source");
    std::fs::create_dir_all(source.join("folder")).expect("a folder");
    std::fs::write(source.join("folder/file"), "content").expect("a file");
    let acl = ACL.replace('_', "");
    let set = format!("setfattr -n system.posix_acl_default -v {acl} @/acls");
    let copy = format!("cp -a {} @/acls", source.display());
    same(
        &["mkdir @/acls", &set, &copy],
        &[
            "getfattr -d -m - -e hex @/acls",
            "getfattr -d -m - -e hex @/acls/source",
            "getfattr -d -m - -e hex @/acls/source/folder",
            "getfattr -d -m - -e hex @/acls/source/folder/file",
        ],
    );
}

#[test]
fn a_subvolume_is_made_read_only_and_back() {
    let image = image();
    let side = Side {
        program: env!("CARGO_BIN_EXE_larder"),
        place: format!("{}:", image.devices()[0].display()),
    };
    for (text, succeeds) in [
        ("subvolume create @/made", true),
        ("property set @/made ro true", true),
        ("truncate -s 1 @/made/file", false),
        ("property set @/made ro maybe", false),
        ("property set @/made label no", false),
        ("property set @/made ro false", true),
        ("truncate -s 1 @/made/file", true),
        ("mkdir @/elsewhere", true),
        ("mv @/made @/elsewhere", true),
        ("property set @/elsewhere/made ro true", true),
    ] {
        let done = side.run(text);
        assert_eq!(done.status.success(), succeeds, "{text}: {done:?}");
    }
    check(&image);
    let mount = image.mount("ro");
    let arguments = ["property", "get", "elsewhere/made", "ro"];
    let shown = Command::new("btrfs").args(arguments).current_dir(mount.path()).output();
    assert_eq!(shown.expect("btrfs starts").stdout, b"ro=true\n");
}

/// An interrupted copy ends by the signal, and leaves an image that needs no repair.
#[test]
fn an_interrupted_copy_leaves_a_sound_image() {
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    let larder = || Command::new(env!("CARGO_BIN_EXE_larder"));
    let made = larder().args(["mkfs", "-q", "-b", "512m"]).arg(&image).status();
    assert!(made.expect("larder starts").success());
    let target = format!("{}:/file", image.display());
    let mut writing =
        larder().args(["write", &target]).stdin(Stdio::piped()).spawn().expect("larder starts");
    let mut input = writing.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut input, &vec![7; 60 << 20]).expect("it reads");
    let pid = rustix::process::Pid::from_child(&writing);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let ended = writing.wait().expect("it ends");
    let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
    assert_eq!(signal, Some(rustix::process::Signal::INT.as_raw()));
    drop(input);
    oracle::check(from_ref(&image), true).expect("btrfs check finds nothing");
    let listed = larder().arg("ls").arg(&image).output().expect("larder starts");
    assert!(listed.status.success());
    let again = larder().args(["mkdir", &target.replace("file", "folder")]).status();
    assert!(again.expect("larder starts").success());
    let mount = KernelMount::open(from_ref(&image), "ro");
    assert!(mount.path().join("folder").is_dir());
}

#[test]
fn help_is_asked_for_by_name_where_h_means_links() {
    for command in ["chown", "touch", "setfattr", "getfattr"] {
        let larder = Command::new(env!("CARGO_BIN_EXE_larder"))
            .args([OsStr::new(command), OsStr::new("--help")])
            .output()
            .expect("larder starts");
        assert!(larder.status.success() && !larder.stdout.is_empty(), "{command}");
    }
}
