//! Messages for wrong input: commands fail, name the operand that is wrong, and give the reason in
//! the words of strerror(3), never a number of the operating system.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use larder_testkit::Scratch;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Runs a command with these words in `folder`.
fn larder(folder: &Path, words: &str) -> Output {
    let words = words.split_whitespace();
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(words).current_dir(folder).stdin(Stdio::null()).output().expect("larder starts")
}

/// What a command that must succeed prints.
#[track_caller]
fn succeed(folder: &Path, words: &str) -> String {
    let output = larder(folder, words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A folder with wrong operands: images, and files that are none.
fn folder() -> Scratch {
    let scratch = Scratch::new();
    let folder = scratch.path();
    succeed(folder, "mkfs -q -b 300M ok.img");
    succeed(folder, "mkdir ok.img:/d");
    write(folder, "ok.img:/f", b"bread");
    // Devices in the same directory would be found.
    fs::create_dir(folder.join("elsewhere")).unwrap();
    succeed(folder, "mkfs -q -d raid1 -m raid1 -b 300M one.img elsewhere/two.img");
    fs::write(folder.join("empty"), "").unwrap();
    fs::write(folder.join("junk"), vec![7; 200_000]).unwrap();
    fs::create_dir(folder.join("folder")).unwrap();
    let mode = Mode::from(0o600);
    mknodat(CWD, folder.join("pipe"), FileType::Fifo, mode, 0).expect("a pipe is made");
    scratch
}

/// Writes a file in an image.
fn write(folder: &Path, target: &str, content: &[u8]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["write", target]).current_dir(folder).stdin(Stdio::piped());
    let mut child = command.spawn().expect("larder starts");
    child.stdin.take().expect("it is piped").write_all(content).expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

/// Commands with `@` for an image, all of which need one.
const ON_IMAGES: &[&str] = &[
    "ls @",
    "cat @:/f",
    "stat @",
    "tar @",
    "cp @:/f copy",
    "cp junk @:/",
    "mkdir @:/x",
    "rm @:/f",
    "mv @:/f @:/g",
    "ln @:/f @:/g",
    "write @:/f",
    "touch @:/f",
    "chmod 600 @:/f",
    "chown 1:1 @:/f",
    "truncate -s 1 @:/f",
    "getfattr @:/f",
    "setfattr -n user.a -v 1 @:/f",
    "reflink @:/f @:/g",
    "subvolume list @",
    "subvolume show @",
    "subvolume get-default @",
    "subvolume set-default 5 @",
    "subvolume create @:/x",
    "subvolume delete @:/x",
    "subvolume delete -i 257 @",
    "subvolume snapshot @:/ @:/x",
    "filesystem df @",
    "filesystem usage @",
    "filesystem show @",
    "filesystem label @",
    "filesystem label @ new",
    "filesystem sync @",
    "property get @",
    "property list @",
    "property set @ label new",
    "inspect rootid @",
    "inspect subvolid-resolve 5 @",
    "inspect inode-resolve 257 @",
    "inspect logical-resolve 4096 @",
    "inspect dump-super @",
    "inspect dump-tree @",
    "check @",
    "send @:/x",
    "receive -f junk @:/",
    "mount @ folder",
    "umount @",
    "mkfs @",
];

/// A command fails, and says something about `named` without error numbers, and without more lines
/// than one error needs.
#[track_caller]
fn fails(output: &Output, words: &str, named: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{words}");
    assert!(output.status.code().is_some_and(|code| code < 3), "{words}: {}", output.status);
    assert!(errors.contains(named), "{words}: {named} is not named: {errors}");
    assert!(!errors.contains("os error"), "{words}: {errors}");
    assert!(!errors.contains("Invalid argument\n"), "{words}: what is refused? {errors}");
    assert_eq!(errors.matches("rror: ").count() + errors.matches("ERROR: ").count(), 1, "{errors}");
}

#[test]
fn operands_that_are_no_images_are_named() {
    let scratch = folder();
    for image in ["missing.img", "folder", "empty", "junk"] {
        for words in ON_IMAGES {
            let words = words.replace('@', image);
            fails(&larder(scratch.path(), &words), &words, image);
        }
    }
    let missing = larder(scratch.path(), "mkfs missing.img");
    let errors = String::from_utf8_lossy(&missing.stderr);
    assert!(errors.contains("-b "), "it says how a file is made: {errors}");
}

/// Wrong command lines, and what is wrong in them.
const WRONG: &[(&str, &str)] = &[
    ("ls ok.img:/none", "/none: No such file or directory\n"),
    ("ls none.img", "none.img: No such file or directory\n"),
    ("filesystem sync folder", "Inappropriate ioctl for device: neither the kernel's btrfs nor"),
    ("cat ok.img:/none", "/none"),
    ("cat ok.img:/d", "/d: Is a directory\n"),
    ("cat ok.img:/f/x", "/f/x: Not a directory\n"),
    ("mkdir ok.img:/d", "/d: File exists\n"),
    ("mkdir ok.img:/none/x", "/none/x"),
    ("mkdir ok.img:/f/x", "/f/x"),
    ("rm ok.img:/d", "/d"),
    ("rm ok.img:/none", "/none"),
    ("mv ok.img:/none ok.img:/x", "/none"),
    ("mv ok.img:/f ok.img:/none/x", "/none/x"),
    ("ln ok.img:/f ok.img:/d", "/d"),
    ("write ok.img:/d", "/d"),
    ("truncate -s 5x ok.img:/f", "5x"),
    ("truncate -s 5 ok.img:/d", "/d"),
    ("chmod abc ok.img:/f", "abc"),
    ("chmod 600 ok.img:/none", "/none"),
    ("touch -d never ok.img:/f", "never"),
    ("property get ok.img:/f color", "color"),
    ("property set ok.img:/f compression rar", "ok.img:/f: compression: "),
    ("property get ok.img:/none", "/none"),
    ("subvolume show ok.img:/d", "/d"),
    ("subvolume show -r 999 ok.img", "999"),
    ("subvolume show -r x ok.img", "'x'"),
    ("subvolume create ok.img:/d", "ok.img:/d"),
    ("subvolume create ok.img:/", "ok.img:/"),
    ("subvolume delete ok.img:/d", "ok.img:/d"),
    ("subvolume delete -i 999 ok.img", "999"),
    ("subvolume snapshot ok.img:/d ok.img:/e", "ok.img:/d"),
    ("subvolume snapshot ok.img:/ other.img:/e", "other.img:/e"),
    ("subvolume set-default 999 ok.img", "999"),
    ("subvolume set-default x ok.img", "no id of a subvolume: 'x'"),
    ("subvolume set-default ok.img:/d", "ok.img:/d"),
    ("ls --subvolid 999 ok.img", "999"),
    ("mkdir --subvolid 999 ok.img:/x", "999"),
    ("mount -o subvolid=999 ok.img folder", "999"),
    ("inspect subvolid-resolve 999 ok.img", "999"),
    ("inspect inode-resolve 999 ok.img", "inode 999"),
    ("inspect logical-resolve 1 ok.img", "address 1"),
    ("send ok.img:/d", "/d"),
    ("receive -f missing ok.img:/", "missing"),
    ("receive -f empty ok.img:/none", "/none"),
    ("receive -f empty ok.img:/f", "/f"),
    ("cp ok.img:/f none/x", "none/x"),
    ("cp ok.img:/d .", "ok.img:/d"),
    ("cp none ok.img:/", "none"),
    ("cp folder ok.img:/", "folder"),
    ("cp ok.img:/none ok.img:/x", "/none"),
    ("cp ok.img:/f ok.img:/f", "ok.img:/f: they are the same file"),
    ("cp ok.img:/d ok.img:/e", "ok.img:/d"),
    ("cp none.img:/f ok.img:/g", "none.img"),
    ("cp ok.img:/f none.img:/g", "none.img"),
    ("mount ok.img none", "none"),
    ("mount ok.img junk", "junk"),
    ("mount -o color ok.img folder", "color"),
    ("mount --create 5x new.img folder", "5x"),
    ("mount --create 1M new.img folder", "new.img"),
    ("umount folder", "folder"),
    ("mkfs ok.img", "-f"),
    ("mkfs -b 1 new.img", "new.img"),
    ("mkfs -b 1x new.img", "1x"),
    (
        "mkfs -b 8E new.img",
        "new.img: setting its length to 9223372036854775808 bytes: file too large",
    ),
    ("mkfs -b 18E new.img", "18E is more than any device holds"),
    ("mkfs -n 5 -b 1G new.img", "5"),
    ("mkfs -r none -b 1G new.img", "none"),
    ("mkfs -b 1G none/new.img", "none/new.img"),
    ("mkfs -b 1G -d raid1 new.img", "raid1"),
    ("ls one.img", "device 2"),
    ("check one.img", "device 2"),
    ("ls --device ok.img one.img", "one.img, device 1 of "),
    ("ls --device one.img one.img", "one.img"),
    ("mv ok.img:/ ok.img:/q", "ok.img:/: the root directory cannot be moved\n"),
    ("mv ok.img:/d ok.img:/d/x", "ok.img:/d to /d/x: Invalid argument: a directory would be"),
    ("ln f ok.img:/g", "f: not in the file system on ok.img; ok.img:/PATH is\n"),
    ("truncate -s 8E ok.img:/f", "ok.img:/f: File too large\n"),
    ("truncate -s 99999999999999999999 ok.img:/f", "99999999999999999999 is more than any"),
    (
        "chown 99999999999 ok.img:/f",
        "'99999999999' is not an id; ids are numbers from 0 to 4294967294",
    ),
    ("chown 4294967295 ok.img:/f", "'4294967295' is not an id"),
    ("setfattr -n user.a -v 0xzz ok.img:/f", "'0xzz'"),
    ("setfattr -n color -v x ok.img:/f", "ok.img:/f: color: no such namespace"),
    ("setfattr -x user.none ok.img:/f", "ok.img:/f: user.none: "),
    ("property set ok.img:/f ro true", "ok.img:/f: object is not compatible with property: ro"),
    ("subvolume delete ok.img:/", "ok.img:/: the subvolume in which paths start cannot be"),
    ("subvolume list -G x ok.img", "'x' is not a number"),
    ("subvolume show -u x ok.img", "'x' is not a uuid"),
    ("ls --subvolid x ok.img", "'x' is not a number"),
    ("subvolume list ok.img:/none", "ok.img:/none: No such file or directory\n"),
    ("filesystem df ok.img:/none", "ok.img:/none: No such file or directory\n"),
    ("inspect inode-resolve x ok.img", "'x' is not a number"),
    (
        "inspect logical-resolve 99999999999999999999 ok.img",
        "'99999999999999999999' is more than 18446744073709551615",
    ),
    ("inspect dump-tree -b x ok.img", "'x' is not a number"),
    ("inspect dump-super --bytenr x ok.img", "'x' is not a number"),
    ("receive -E x ok.img:/", "'x' is not a number"),
    ("send --proto x ok.img:/", "'x' is not a number"),
    ("mount -o subvolid=x ok.img folder", "'subvolid=x': 'x' is not a number"),
    ("mount -o commit=x ok.img folder", "'commit=x': 'x' is not a number"),
    ("mkfs", "DEVICE"),
    ("mkfs -f one.img one.img", "one.img: given twice\n"),
    ("mkfs -b 1G new.img ./new.img", "new.img and ./new.img: the same device\n"),
    ("mkfs -b 1G -U x new.img", "'x' is not a uuid"),
    (
        "cp ok.img:/f pipe",
        "ok.img:/f: cannot copy it to pipe: a device, pipe or socket is in the way, and stays",
    ),
    ("reflink ok.img:/f ok.img:/d", "/d"),
    ("reflink none folder/x", "none"),
];

#[test]
fn wrong_operands_are_named() {
    let scratch = folder();
    for (words, named) in WRONG {
        fails(&larder(scratch.path(), words), words, named);
    }
    assert!(!scratch.path().join("new.img").exists(), "what fails leaves no file behind");
    assert_eq!(succeed(scratch.path(), "ls ok.img"), "d\nf\n", "nothing was done");
    assert_eq!(succeed(scratch.path(), "cat ok.img:/f"), "bread");
}

#[test]
fn an_image_in_use_is_refused_with_the_place_where_it_is_mounted() {
    let scratch = folder();
    let folder = scratch.path();
    succeed(folder, "mount ok.img folder");
    for words in ["mkdir ok.img:/x", "mkfs -f ok.img", "mount ok.img folder", "write ok.img:/f"] {
        fails(&larder(folder, words), words, "ok.img: mounted at ");
    }
    // A path on the mount is no image.
    for words in ["mkdir folder", "cat folder/f"] {
        fails(&larder(folder, words), words, words.split([' ', ':']).nth(1).unwrap());
    }
    for (words, named) in [
        ("cp /etc/passwd copy", "copy: is not on a mount"),
        ("subvolume create folder/d", "folder/d"),
        ("subvolume delete folder/d", "folder/d"),
        ("subvolume snapshot folder/d folder/e", "folder/d"),
        ("subvolume set-default 999 folder", "999"),
        ("property set folder/f compression rar", "folder/f"),
        ("property set folder/d ro true", "ro"),
        ("inspect inode-resolve 999 folder", "inode 999"),
    ] {
        fails(&larder(folder, words), words, named);
    }
    succeed(folder, "umount folder");
}

/// Commands with `@` for an image that print something.
const PRINTING: &[&str] = &[
    "ls @",
    "cat @:/f",
    "stat @:/f",
    "tar @:/",
    "getfattr -d @:/f",
    "check @",
    "filesystem df @:/d",
    "filesystem label @",
    "filesystem show @",
    "filesystem usage @:/",
    "inspect dump-super @",
    "inspect dump-tree @",
    "inspect inode-resolve 257 @",
    "inspect rootid @",
    "inspect subvolid-resolve 256 @",
    "mkfs -f other.img",
    "mkfs -O list-all",
    "property get @:/s",
    "property list @:/s",
    "receive --dump -f stream",
    "send @:/r",
    "subvolume create @:/new",
    "subvolume delete @:/t",
    "subvolume get-default @",
    "subvolume list @",
    "subvolume show @:/s",
    "subvolume snapshot @:/s @:/newer",
    "completions bash",
    "--help",
    "ls --help",
    "--version",
];

/// Output that standard output cannot take is reported as an error; a reader that has gone ends a
/// command as it ends others.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let scratch = folder();
    let folder = scratch.path();
    for words in ["create ok.img:/s", "create ok.img:/t", "snapshot -r ok.img:/s ok.img:/r"] {
        succeed(folder, &format!("subvolume {words}"));
    }
    succeed(folder, "setfattr -n user.a -v 1 ok.img:/f");
    succeed(folder, "send -f stream ok.img:/r");
    succeed(folder, "mkfs -q -b 300M other.img");
    for words in PRINTING {
        let words = words.replace('@', "ok.img");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.args(words.split(' ')).current_dir(folder).stdin(Stdio::null()).stdout(full);
        let output = command.output().expect("larder starts");
        fails(&output, &words, "No space left on device");
    }
    for words in ["ls -R ok.img", "inspect dump-tree ok.img", "tar ok.img", "cat ok.img:/f"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.args(words.split(' ')).current_dir(folder).stdin(Stdio::null()).stdout(writer);
        let output = command.output().expect("larder starts");
        assert_eq!(output.status.signal(), Some(13), "{words}: {}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words}");
    }
}

#[test]
fn a_name_with_a_newline_stays_on_one_line() {
    let scratch = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.args(["ls", "ok.img:/a\nb\x1b[2J"]).current_dir(scratch.path()).output();
    let said = output.expect("larder starts").stderr;
    let expected = "ERROR: ok.img:/a\\nb\\u{1b}[2J: No such file or directory\n";
    assert_eq!(String::from_utf8_lossy(&said), expected);
}

#[test]
fn missing_permission_is_named() {
    let scratch = folder();
    let folder = scratch.path();
    let program = folder.join("larder");
    // By another process: a child that another thread starts meanwhile would inherit a descriptor
    // for writing, and no process may run a file that is open for writing.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_larder")).arg(&program).status();
    assert!(copied.expect("cp starts").success());
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.join("ok.img"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(folder.join("one.img"), Permissions::from_mode(0o444)).unwrap();
    for (words, named) in [
        ("ls ok.img", "ok.img: Permission denied"),
        ("check ok.img", "ok.img: Permission denied"),
        ("mkdir --device elsewhere/two.img one.img:/x", "one.img: Permission denied"),
        ("mkfs -f ok.img", "ok.img: Permission denied"),
        ("mkfs -b 1G new.img", "new.img: Permission denied"),
    ] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program);
        let output = command.args(words.split(' ')).current_dir(folder).output();
        fails(&output.expect("setpriv starts"), words, named);
    }
}

/// An image whose first superblock is broken is still an image, also where a path of a mount could
/// stand.
#[test]
fn an_image_without_its_first_superblock_is_no_path_of_a_mount() {
    let scratch = folder();
    let image = File::options().write(true).open(scratch.path().join("ok.img")).unwrap();
    image.write_all_at(&[0; 4096], 64 << 10).unwrap();
    for command in ["ls", "du", "tar", "subvolume list", "filesystem df", "check"] {
        let [alone, with_path] = ["", ":/"].map(|path| {
            let output = larder(scratch.path(), &format!("{command} ok.img{path}"));
            let said = String::from_utf8_lossy(&output.stderr).replace(":/", "");
            (output.status.code(), output.stdout, said)
        });
        if command != "check" {
            assert_eq!(alone, with_path, "{command}");
        }
        assert!(!alone.2.contains("mount"), "{command}: {}", alone.2);
    }
}
