//! `docs/options.md`: every command and option of btrfs-progs, and of larder. The page is made from
//! the help of both programs, and nothing of btrfs-progs may be silently missing: what larder does
//! not have, it refuses with a reason.
//!
//! `LARDER_REWRITE=1` writes the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// The names of options by the command that has them; each option is a list of names.
type Options = BTreeMap<String, Vec<Vec<String>>>;

/// What a program prints, on both streams.
fn says(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8(said).expect("it is text")
}

fn words(path: &str) -> Vec<&str> {
    path.split_whitespace().collect()
}

/// The command in a line of usage of btrfs-progs, by the name that larder has for it.
fn command_in(line: &str) -> Option<String> {
    let is_word = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let usage = line.strip_prefix("    btrfs ")?;
    let usage = usage.split(' ').take_while(|word| is_word(word) && !word.starts_with('-'));
    let path = usage.collect::<Vec<_>>().join(" ");
    Some(path.replace("inspect-internal", "inspect"))
}

/// The names in a line that describes an option of btrfs-progs: `-s|--super <superblock>`.
fn names_in(line: &str) -> Option<Vec<String>> {
    let names = line.trim_start().split([' ', '[', '=']).next()?;
    let is_option = names.starts_with('-') && names.len() > 1;
    is_option
        .then(|| names.split('|').filter(|name| name.starts_with('-')).map(str::to_owned).collect())
}

/// The commands and options of btrfs-progs. The options before the command are those of "".
fn theirs() -> Options {
    let mut options = Options::from([(String::new(), Vec::new())]);
    let (mut command, mut is_global) = (String::new(), false);
    for line in says("btrfs", &["--help", "--full"]).lines() {
        if let Some(path) = command_in(line) {
            (command, is_global) = (path, false);
            options.entry(command.clone()).or_default();
        } else if line.trim() == "Global options:" && !command.is_empty() {
            is_global = true;
        } else if let Some(names) = names_in(line).filter(|_| !is_global) {
            options.entry(command.clone()).or_default().push(names);
        }
    }
    let mkfs = says("mkfs.btrfs", &["--help"]);
    options.insert("mkfs".into(), mkfs.lines().filter_map(names_in).collect());
    options
}

/// The options that the help of a command of larder shows: `  -d, --data <PROFILE>`.
fn options_in(help: &str) -> Vec<Vec<String>> {
    let mut options: Vec<Vec<String>> = Vec::new();
    for line in help.lines() {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with('-') && (indent == 2 || indent == 6) {
            let names = line.trim_start().split("  ").next().unwrap_or_default().split(", ");
            let name =
                |text: &str| text.split([' ', '[', '.']).next().unwrap_or_default().to_owned();
            options.push(names.map(name).collect());
        }
        if let (Some((_, names)), Some(option)) = (line.split_once("[alias"), options.last_mut()) {
            let names = names.split([' ', ',', ']', ':']).filter(|name| name.starts_with('-'));
            option.extend(names.map(str::to_owned));
        }
    }
    options
}

/// The commands and options of larder, from `path` on.
fn ours(path: &str, options: &mut Options) {
    let help = says(LARDER, &[&words(path)[..], &["--help"]].concat());
    let below = help.split_once("\nCommands:\n").map_or("", |(_, list)| list);
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    for line in below.lines().take_while(|line| !line.is_empty()).filter(is_command) {
        let name = line.split_whitespace().next().expect("a line has words");
        if name != "help" {
            ours(format!("{path} {name}").trim_start(), options);
        }
    }
    if below.is_empty() || path.is_empty() {
        options.insert(path.into(), options_in(&help));
    }
}

/// The commands of larder.
pub(crate) fn commands() -> Vec<String> {
    let mut options = Options::new();
    ours("", &mut options);
    options.into_keys().filter(|path| !path.is_empty()).collect()
}

/// The reason why a command writes no JSON, if it has one.
pub(crate) fn refused_format(path: &str) -> Option<String> {
    let said = says(LARDER, &[&["--format", "json"], &words(path)[..]].concat());
    let reason = said.strip_prefix("ERROR: output format json is unsupported for this command: ");
    reason.map(|reason| reason.trim_end().to_owned())
}

/// The reason why larder does not have a command or an option.
#[track_caller]
fn refusal(path: &str, option: &str) -> String {
    let said = says(LARDER, &[&words(path)[..], &words(option)].concat());
    let reason = if option.is_empty() {
        let before = format!("ERROR: larder {path}: ");
        said.strip_prefix(&before).map(str::to_owned).or_else(|| {
            // A whole group of commands is missing.
            let (group, _) = path.split_once(' ')?;
            said.strip_prefix(&format!("ERROR: larder {group}: ")).map(str::to_owned)
        })
    } else {
        let after = said.strip_prefix(&format!("ERROR: larder {path}: no option "));
        after.and_then(|after| Some(after.split_once(": ")?.1.to_owned()))
    };
    let reason = reason.unwrap_or_else(|| panic!("{path} {option}: not refused: {said}"));
    reason.trim_end().to_owned()
}

fn code(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
}

const HEAD: &str = "\
# Commands and options of btrfs-progs and of larder

This page is made from what both programs say about themselves; a test of `cli/tests/images` fails
where it is not true, and writes it anew with `LARDER_REWRITE=1`. An option that is the same has the
same name and meaning; [commands.md](commands.md) lists where output or behaviour differ.

## Commands that both have

";

fn page() -> String {
    let theirs = theirs();
    let mut all_ours = Options::new();
    ours("", &mut all_ours);
    assert!(theirs.len() > 60 && all_ours.len() > 40, "help was not understood");
    let always: BTreeSet<&str> = ["-h", "--help", "-V", "--version"].into();
    let mut page = String::from(HEAD);
    page += "| command | the same | only larder | refused, because |\n| --- | --- | --- | --- |\n";
    for (path, ours) in &all_ours {
        let Some(theirs) = theirs.get(path) else { continue };
        let our_names: BTreeSet<&String> = ours.iter().flatten().collect();
        let their_names: BTreeSet<&String> = theirs.iter().flatten().collect();
        let (mut same, mut refused) = (Vec::new(), Vec::<(String, String)>::new());
        for option in theirs {
            let known: Vec<_> = option.iter().filter(|name| our_names.contains(name)).collect();
            if known.len() == option.len() {
                same.push(code(option));
            } else {
                assert!(known.is_empty(), "{path}: of {option:?} only {known:?} is there");
                refused.push((refusal(path, &option[0]), code(option)));
            }
        }
        let is_more = |name: &&String| !their_names.contains(*name) && !always.contains(&***name);
        let more = ours.iter().filter_map(|option| {
            let names: Vec<String> = option.iter().filter(is_more).cloned().collect();
            (!names.is_empty()).then(|| code(&names))
        });
        let more = more.collect::<Vec<_>>().join(", ");
        let shown = if path.is_empty() { "before the command".into() } else { format!("`{path}`") };
        let refused = refused.chunk_by(|one, next| one.0 == next.0).map(|alike| {
            let options: Vec<_> = alike.iter().map(|(_, option)| option.as_str()).collect();
            format!("{}: {}", options.join(", "), alike[0].0)
        });
        let (same, refused) = (same.join(", "), refused.collect::<Vec<_>>().join("; "));
        writeln!(page, "| {shown} | {same} | {more} | {refused} |").expect("memory takes it");
    }
    page += "\n## Commands of btrfs-progs that larder does not have\n\n";
    page += "| command | larder says |\n| --- | --- |\n";
    let is_ours = |path: &str| {
        let group = format!("{path} ");
        all_ours.keys().any(|own| own == path || own.starts_with(&group))
    };
    for path in theirs.keys().filter(|path| !is_ours(path) && *path != "help") {
        writeln!(page, "| `{path}` | {} |", refusal(path, "")).expect("memory takes it");
    }
    page += "\n## Commands that only larder has\n\n| command | options |\n| --- | --- |\n";
    for (path, ours) in all_ours.iter().filter(|(path, _)| !theirs.contains_key(*path)) {
        let is_own = |name: &&String| !always.contains(&***name);
        let options = ours.iter().filter_map(|option| {
            let names: Vec<String> = option.iter().filter(is_own).cloned().collect();
            (!names.is_empty()).then(|| code(&names))
        });
        let options = options.collect::<Vec<_>>().join(", ");
        writeln!(page, "| `{path}` | {options} |").expect("memory takes it");
    }
    page += "\n## Commands that do not write JSON\n\nAll others do, with `--format json`.\n\n";
    page += "| because | commands |\n| --- | --- |\n";
    let mut refused = BTreeMap::<String, Vec<String>>::new();
    for path in commands() {
        if let Some(reason) = refused_format(&path) {
            refused.entry(reason).or_default().push(format!("`{path}`"));
        }
    }
    for (reason, commands) in refused {
        writeln!(page, "| {reason} | {} |", commands.join(", ")).expect("memory takes it");
    }
    page
}

#[test]
fn every_option_of_btrfs_progs_is_there_or_refused_with_a_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    let page = page();
    if std::env::var_os("LARDER_REWRITE").is_some() {
        std::fs::write(&path, &page).expect("it can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    for (written, expected) in written.lines().zip(page.lines()) {
        assert_eq!(written, expected, "docs/options.md; LARDER_REWRITE=1 writes it anew");
    }
    assert!(written == page, "docs/options.md; LARDER_REWRITE=1 writes it anew");
}
