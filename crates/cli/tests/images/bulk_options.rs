//! `docs/bulk-options.md`: the options of the system's commands for files and of larder's. The page is
//! made from the help of both, so that it is true of each option's name; tests of
//! `cli/tests/mount` (`bulk`, `overwriting`, `on_mount`) compare what they do.
//!
//! `LARDER_REWRITE=1` writes the page.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The commands, and where what is missing can be had, or why it is not needed.
const COMMANDS: [(&str, &str); 8] = [
    (
        "cp",
        "on a mount the system's `cp` has them all; `-a` is the only way here to keep attributes, \
         data is always shared where it can be, and holes are always kept",
    ),
    ("mv", "on a mount the system's `mv` has them; it is as fast, except between subvolumes"),
    ("rm", "on a mount the system's `rm` has them, with a request for each file"),
    ("chmod", "on a mount the system's `chmod` has them, with a request for each file"),
    ("chown", "on a mount the system's `chown` has them, with a request for each file"),
    (
        "tar",
        "the archive always goes to standard output, in the format pax, with owners by number, \
         extended attributes, ACLs and holes; pipe it through a compressor, and into `tar`",
    ),
    ("ls", "the output is that of `ls -1` and `ls -l`, sorted by name; JSON has everything else"),
    ("du", "`larder filesystem du` and `larder report` tell what is shared"),
];

const HEAD: &str = "\
# Options of the system's commands for files, and of larder's

`larder cp`, `mv`, `rm`, `chmod`, `chown`, `tar`, `ls` and `du` do on images and mounts what the
system's commands of the same names do. This page is made from what both programs say about
themselves; a test of `cli/tests/images` fails where it is not true, and writes it anew with
`LARDER_REWRITE=1`. An option that is the same has the same name and meaning, and tests compare the
results.

Where results differ, and why:

| | the system's | larder's | because |
| --- | --- | --- | --- |
| `cp` onto a symbolic link that the user does not name (`cp -r d to`, `cp f to/`) | writes to what the link leads to | replaces the link | a user who may write to the directory could otherwise choose which file root overwrites |
| `cp` of a device or a pipe without `-r` | copies its content | makes a device or a pipe | reading one may never end |
| `cp FILE DEVICE` | writes to the device | refuses, and names `larder cat` | likewise |
| `ls -a` with names that sort before `.` | shows them first | shows `.` and `..` first | |
| `ls -la` of the root of a mount or an image | shows as `..` the directory above the mount | shows the root | nothing above it is in the file system |
| `rm`, `chmod`, `chown` of many files | stop at no error | likewise, and report each with both names | |
| `rm`, `mv` on a terminal | ask before a file that cannot be written to | never ask | they are for scripts and for many files |
| `rm -r` of a subvolume | removes its files, and then it | the same, in one step | |
| all, by users other than root and the one who runs the server | as the modes say | refused | the server knows only those two; the system's commands work |

Options that the system's command has and larder's has not are unknown to larder (exit code 2).

";

/// The options that a help text names: `  -a, --archive  what it does`.
fn options_in(help: &str, most_indent: usize) -> Vec<Vec<String>> {
    let is_option = |line: &&str| {
        let text = line.trim_start();
        text.starts_with('-') && line.len() - text.len() <= most_indent
    };
    let names = |line: &str| {
        let names = line.trim_start().split("  ").next().unwrap_or_default().split(", ");
        let name =
            |text: &str| text.split([' ', '[', '=', '.']).next().unwrap_or_default().to_owned();
        names.map(name).filter(|name| name.starts_with('-')).collect()
    };
    help.lines().filter(is_option).map(names).collect()
}

fn help(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8(output.stdout).expect("it is text")
}

fn code(options: &[Vec<String>]) -> String {
    let one = |names: &Vec<String>| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
    };
    options.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn page() -> String {
    let mut page = String::from(HEAD);
    page += "| command | the same | only larder | only the system's | instead |\n";
    page += "| --- | --- | --- | --- | --- |\n";
    let always: BTreeSet<&str> = ["--help", "--version", "--usage"].into();
    for (command, instead) in COMMANDS {
        let ours = options_in(&help(env!("CARGO_BIN_EXE_larder"), &[command, "--help"]), 6);
        let theirs = options_in(&help(command, &["--help"]), 6);
        assert!(!ours.is_empty() && theirs.len() > 5, "{command}: help was not understood");
        let has = |options: &[Vec<String>], names: &[String]| {
            options.iter().flatten().any(|name| names.contains(name))
        };
        let is_known = |names: &&Vec<String>| !names.iter().any(|name| always.contains(&**name));
        let of = |options: &[Vec<String>], others: &[Vec<String>], shared: bool| -> Vec<_> {
            let wanted = |names: &&Vec<String>| has(others, names) == shared;
            options.iter().filter(is_known).filter(wanted).cloned().collect()
        };
        let same = code(&of(&ours, &theirs, true));
        let (more, missing) = (code(&of(&ours, &theirs, false)), code(&of(&theirs, &ours, false)));
        writeln!(page, "| `{command}` | {same} | {more} | {missing} | {instead} |").unwrap();
    }
    page
}

#[test]
fn the_page_of_bulk_options_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bulk-options.md");
    let page = page();
    if std::env::var_os("LARDER_REWRITE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let different = written.lines().zip(page.lines()).find(|(written, page)| written != page);
    assert!(
        written == page,
        "docs/bulk-options.md is not true any more; LARDER_REWRITE=1 writes it: {different:?}"
    );
}
