//! Called by a name of btrfs-progs, the program reads its command line and ends as that program
//! does. The installed programs are the oracle.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use larder_testkit::Scratch;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

#[track_caller]
fn run(program: impl AsRef<Path>, words: &str) -> Output {
    let mut command = Command::new(program.as_ref());
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command.output().unwrap_or_else(|error| panic!("{}: {error}", program.as_ref().display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with links to larder by all names.
fn links() -> Scratch {
    let scratch = Scratch::new();
    let made = run(LARDER, &format!("install-links {}", scratch.path().display()));
    assert!(made.status.success(), "{}", text(&made.stderr));
    for name in MISSING_PROGRAMS {
        symlink(LARDER, scratch.path().join(name)).expect("a new name");
    }
    scratch
}

const MISSING_PROGRAMS: [&str; 4] =
    ["btrfstune", "btrfs-image", "btrfs-map-logical", "btrfs-find-root"];

/// Command lines that run no command, or one that fails at once.
const LINES: &[(&str, &str)] = &[
    ("btrfs", ""),
    ("btrfs", "--help"),
    ("btrfs", "--version"),
    ("btrfs", "version"),
    ("btrfs", "-q version"),
    ("btrfs", "-v -v version"),
    ("btrfs", "-qv version"),
    ("btrfs", "--quiet --verbose --log debug --format text version"),
    ("btrfs", "--bogus"),
    ("btrfs", "-x version"),
    ("btrfs", "--format xml version"),
    ("btrfs", "--log bogus version"),
    ("btrfs", "bogus"),
    ("btrfs", "s l"),
    ("btrfs", "subvolume"),
    ("btrfs", "subvolume bogus"),
    ("btrfs", "subvolume --help"),
    ("btrfs", "subvolume list"),
    ("btrfs", "subvolume list --help"),
    ("btrfs", "subvolume list --bogus x"),
    ("btrfs", "--format json subvolume list /"),
    ("btrfs", "filesystem df /nonexistent"),
    ("btrfs", "inspect-internal"),
    ("btrfs", "inspect-internal bogus"),
    ("btrfs", "inspect-internal dump-tree"),
    ("btrfs", "ins dump-super /nonexistent"),
    ("btrfs", "check"),
    ("btrfs", "check /nonexistent"),
    ("btrfs", "send"),
    ("btrfs", "receive"),
    ("btrfsck", ""),
    ("btrfsck", "--help"),
    ("btrfsck", "/nonexistent"),
    ("mkfs.btrfs", ""),
    ("mkfs.btrfs", "--bogus"),
    ("mkfs.btrfs", "--version"),
    ("mkfs.btrfs", "-V"),
    ("mkfs.btrfs", "/nonexistent"),
    ("fsck.btrfs", ""),
    ("fsck.btrfs", "-a"),
    ("fsck.btrfs", "/dev/null"),
    ("fsck.btrfs", "-a /dev/null"),
    ("fsck.btrfs", "-C0 -T -y /dev/null"),
    ("fsck.btrfs", "/nonexistent"),
    ("fsck.btrfs", "-p /nonexistent"),
    ("fsck.btrfs", "--bogus /dev/null"),
];

/// The exit code, and which of the two streams something was written to. btrfs-progs often splits
/// its answer to a wrong command line; larder writes errors to standard error only.
fn ending(output: &Output) -> (Option<i32>, bool) {
    let says_on_stdout = output.status.success() && !output.stdout.is_empty();
    (output.status.code(), says_on_stdout)
}

#[test]
fn it_ends_as_the_program_that_it_is_called_as() {
    let links = links();
    for (name, words) in LINES {
        let (ours, theirs) = (run(links.path().join(name), words), run(name, words));
        let said = text(&ours.stderr);
        assert_eq!(ending(&ours), ending(&theirs), "{name} {words}: {said}");
        let is_error = ours.status.code() == Some(1) && ours.stdout.is_empty();
        assert!(!is_error || !said.is_empty(), "{name} {words}: fails without a word");
    }
    for words in ["", "subvolume", "inspect-internal"] {
        let (ours, theirs) = (run(links.path().join("btrfs"), words), run("btrfs", words));
        assert!(!ours.stdout.is_empty() && !theirs.stdout.is_empty(), "{words}");
    }
    for (name, words) in [("btrfs", "--version"), ("btrfs", "version"), ("mkfs.btrfs", "-V")] {
        let (ours, theirs) = (run(links.path().join(name), words), run(name, words));
        let (ours, theirs) = (text(&ours.stdout), text(&theirs.stdout));
        assert_eq!(ours.lines().next(), theirs.lines().next(), "{name} {words}");
        assert!(ours.contains("\nlarder "), "{ours}");
    }
    // By its own name it tells a wrong command line from a failure.
    assert_eq!(run(LARDER, "subvolume list").status.code(), Some(2));
    assert_eq!(run(LARDER, "check /nonexistent").status.code(), Some(2));
}

#[test]
fn help_shows_the_name_of_the_program() {
    let links = links();
    let help = |name: &str, words: &str| text(&run(links.path().join(name), words).stdout);
    let btrfs = help("btrfs", "subvolume create --help");
    assert!(btrfs.contains("Usage: btrfs subvolume create"), "{btrfs}");
    assert!(btrfs.contains("\n  btrfs subvolume create disk.img:/home"), "{btrfs}");
    let mkfs = help("mkfs.btrfs", "--help");
    assert!(mkfs.contains("Usage: mkfs.btrfs [OPTIONS]"), "{mkfs}");
    assert!(mkfs.contains("\n  mkfs.btrfs -L backup -b 8G disk.img"), "{mkfs}");
}

/// The command whose usage `program` shows, or that it says is missing.
fn command_meant(program: &Path, word: &str) -> Option<String> {
    let output = run(program, &format!("{word} --help"));
    let said = text(&output.stdout) + &text(&output.stderr);
    let before = ["usage: btrfs ", "Usage: btrfs ", "ERROR: btrfs "];
    let after = before.iter().find_map(|before| said.split(before).nth(1))?;
    let command = after.split([' ', ':', '\n']).next()?;
    (!command.starts_with('[')).then(|| command.replace("inspect-internal", "inspect"))
}

/// The beginnings of commands that `btrfs` understands mean the same.
#[test]
fn shortened_commands_are_those_of_btrfs() {
    let links = links();
    for command in [
        "balance",
        "check",
        "device",
        "filesystem",
        "inspect-internal",
        "property",
        "qgroup",
        "quota",
        "receive",
        "replace",
        "rescue",
        "restore",
        "scrub",
        "send",
        "subvolume",
    ] {
        let understood = (1..=command.len()).filter(|length| {
            let word = &command[..*length];
            let theirs = command_meant("btrfs".as_ref(), word);
            let ours = command_meant(&links.path().join("btrfs"), word);
            assert!(theirs.is_none() || ours == theirs, "{word}: {ours:?} for {theirs:?}");
            theirs.is_some()
        });
        assert!(understood.count() > 1, "{command}");
    }
}

#[test]
fn what_is_missing_is_named_in_one_sentence() {
    let links = links();
    let says = |program: &Path, words: &str, named: &str| {
        let output = run(program, words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        assert!(output.stdout.is_empty(), "{words}");
        assert!(said.starts_with(&format!("ERROR: {named}: ")), "{words}: {said}");
        assert_eq!(said.lines().count(), 1, "{words}: {said}");
    };
    let btrfs = links.path().join("btrfs");
    for command in ["filesystem defragment", "qgroup", "quota", "rescue clear-ino-cache"] {
        for words in [command.to_owned(), format!("{command} -x --long=1 start disk.img /mnt")] {
            says(&btrfs, &words, &format!("btrfs {command}"));
            says(Path::new(LARDER), &words, &format!("larder {command}"));
        }
    }
    says(&btrfs, "check --backup", "btrfs check");
    says(&btrfs, "check --backup disk.img", "btrfs check");
    says(Path::new(LARDER), "subvolume create -i 1/5 disk.img:/x", "larder subvolume create");
    says(&links.path().join("mkfs.btrfs"), "-l 4096 disk.img", "mkfs.btrfs");
    for name in MISSING_PROGRAMS {
        says(&links.path().join(name), "-x disk.img", name);
    }
}

#[test]
fn the_links_work_on_images() {
    let links = links();
    let image = links.path().join("disk.img");
    let image = image.display();
    let succeed = |name: &str, words: &str| {
        let output = run(links.path().join(name), words);
        assert!(output.status.success(), "{name} {words}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    succeed("mkfs.btrfs", &format!("--label pantry --byte-count 300M {image}"));
    assert_eq!(succeed("btrfs", &format!("filesystem label {image}")), "pantry\n");
    assert_eq!(succeed("btrfs", &format!("-q subvolume create {image}:/home")), "");
    let made = succeed("btrfs", &format!("subvolume snapshot {image}:/home {image}:/monday"));
    assert!(made.starts_with("Create a snapshot of "), "{made}");
    assert_eq!(succeed("btrfs", &format!("-q subvolume snapshot {image}:/home {image}:/b")), "");
    assert_eq!(succeed("btrfs", &format!("-q subvolume delete {image}:/b")), "");
    succeed("btrfs", &format!("-q subvolume create {image}:/c"));
    let deleted = succeed("btrfs", &format!("subvolume delete --verbose {image}:/c"));
    assert!(deleted.starts_with("Transaction commit: at the end\nDelete "), "{deleted}");
    let dump = format!("inspect-internal dump-super {image}");
    assert_eq!(succeed("btrfs", &dump), text(&run("btrfs", &dump).stdout));
    succeed("btrfsck", &format!("--readonly {image}"));
    succeed("fsck.btrfs", &format!("-a {image}"));
    let quiet = run(links.path().join("btrfs"), &format!("-q check {image}"));
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
    let json = succeed("btrfs", &format!("--format json check {image}"));
    assert!(json.starts_with('{'), "{json}");
}

#[test]
fn links_replace_only_links_to_larder() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    let install =
        |options: &str| run(LARDER, &format!("install-links {options} {}", folder.display()));
    let target = |name: &str| fs::read_link(folder.join(name)).ok();
    let larder = Some(LARDER.into());

    fs::write(folder.join("fsck.btrfs"), "a program").unwrap();
    symlink("/opt/old/larder", folder.join("btrfs")).unwrap();
    let refused = install("");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("fsck.btrfs: is no link to larder; --force replaces it"), "{said}");
    assert_eq!(target("btrfs"), Some("/opt/old/larder".into()), "one was made nevertheless");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2);

    let made = install("--force");
    let said = text(&made.stdout);
    assert!(made.status.success(), "{}", text(&made.stderr));
    for name in ["btrfs", "btrfsck", "mkfs.btrfs", "fsck.btrfs", "mount.fuse.larder"] {
        assert_eq!(target(name), larder, "{name}");
        let line = format!("{} -> {LARDER}\n", folder.join(name).display());
        assert!(said.contains(&line), "{said}");
    }
    // A link to a program that larder is not would hide one that works.
    assert_eq!(target("btrfstune"), None);

    assert!(install("").status.success(), "links to larder are in its way");
    fs::remove_file(folder.join("btrfs")).unwrap();
    fs::create_dir(folder.join("btrfs")).unwrap();
    let refused = install("--force");
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("btrfs: is a directory"), "{said}");
    let refused = run(LARDER, "install-links /nonexistent");
    let said = text(&refused.stderr);
    assert!(said.contains("/nonexistent: No such file or directory"), "{said}");
}

/// The `--` that ends options means nothing in `help --`, as in that of btrfs.
#[test]
fn help_may_end_its_options() {
    let help = |program: &str, words: &[&str]| {
        let mut command = Command::new(LARDER);
        let output = command.arg0(program).args(words).output().expect("it starts");
        (output.status.code(), output.stdout)
    };
    for program in ["larder", "btrfs"] {
        assert_eq!(help(program, &["help", "--"]), help(program, &["help"]));
        assert_eq!(help(program, &["help", "--"]).0, Some(0));
        assert_eq!(help(program, &["help", "--", "send"]), help(program, &["help", "send"]));
    }
}

/// A terminal obeys control characters, so it gets escapes; scripts get every byte as it is.
#[test]
fn a_terminal_gets_names_with_escapes() {
    const NAME: &str = "a\x1b[2J\u{9b}b\nc\r";
    let scratch = Scratch::new();
    let folder = scratch.path();
    let larder = |words: &[&str]| {
        let output = Command::new(LARDER).args(words).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    larder(&["mkfs", "-q", "-b", "300M", "d.img"]);
    let path = format!("d.img:/{NAME}");
    larder(&["subvolume", "create", &path]);
    larder(&["ln", "-s", NAME, &format!("{path}/link{NAME}")]);
    larder(&["subvolume", "set-default", "256", "d.img"]);
    larder(&["setfattr", "-n", &format!("user.{NAME}"), "-v", "1", "--subvolid", "5", &path]);
    let on_terminal = |words: &[&str]| {
        let quoted = |word: &&str| format!("'{word}'");
        let line: Vec<_> = [LARDER].iter().chain(words).map(quoted).collect();
        let mut script = Command::new("script");
        script.args(["-qefc", &line.join(" "), "/dev/null"]).current_dir(folder);
        text(&script.stdin(Stdio::null()).output().unwrap().stdout)
    };
    let by_number = |command: &'static str| [command, "--subvolid", "5", "d.img"];
    for words in [
        &by_number("ls")[..],
        &["ls", "-lR", "d.img"],
        &["du", "-a", "--subvolid", "5", "d.img"],
        &["stat", "--subvolid", "5", &path],
        &["subvolume", "list", "d.img"],
        &["subvolume", "show", "d.img"],
        &["subvolume", "get-default", "d.img"],
        &["subvolume", "find-new", "d.img", "0"],
        &["filesystem", "du", "d.img"],
        &["inspect", "subvolid-resolve", "256", "d.img"],
        &["inspect", "inode-resolve", "257", "d.img"],
        &["inspect", "dump-tree", "d.img"],
        &["getfattr", "-d", "--subvolid", "5", &path],
        &["property", "get", "--subvolid", "5", &path],
        &["check", "d.img"],
        // Errors, and what was done.
        &["ls", &format!("d.img:/{NAME}/none")],
        &["cat", &format!("d.img:/{NAME}")],
        &["subvolume", "create", &format!("d.img:/{NAME}")],
        &["subvolume", "snapshot", &format!("d.img:/{NAME}"), &format!("d.img:/{NAME}2")],
        &["subvolume", "delete", &format!("d.img:/{NAME}2")],
        &["rm", &format!("d.img:/{NAME}/none")],
        &["cp", &format!("d.img:/{NAME}/none"), "."],
    ] {
        let said = on_terminal(words);
        // A terminal driver ends lines with both characters.
        let is_bad = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
        assert!(!said.replace("\r\n", "\n").contains(is_bad), "{words:?}: {said:?}");
    }
    assert!(on_terminal(&by_number("ls")).starts_with("a\\x1b[2J"));
    assert_eq!(larder(&by_number("ls")), format!("{NAME}\n"));
    assert_eq!(larder(&["inspect", "subvolid-resolve", "256", "d.img"]), format!("{NAME}\n"));
    let content = "\x1b[1mbold\n";
    std::fs::write(folder.join("content"), content).unwrap();
    larder(&["cp", "content", "d.img:/"]);
    assert_eq!(on_terminal(&["cat", "d.img:/content"]).replace("\r\n", "\n"), content);
}
