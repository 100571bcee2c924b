//! The commands of the documents, run as a reader would run them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use larder_testkit::Scratch;

use super::support::succeed;

/// Stands before the output of each command.
const MARK: &str = "@@@@ ";

/// A command of a document, and the lines that the document shows as its output.
struct Shown<'d> {
    command: &'d str,
    output: Vec<&'d str>,
}

/// The commands in the blocks of `console`.
fn shown(document: &str) -> Vec<Shown<'_>> {
    let mut shown: Vec<Shown<'_>> = Vec::new();
    let mut is_console = false;
    for line in document.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if is_console && let Some(command) = line.strip_prefix("$ ") {
            shown.push(Shown { command, output: Vec::new() });
        } else if is_console {
            shown.last_mut().expect("a block begins with a command").output.push(line);
        }
    }
    shown
}

/// Runs all commands of a document in one shell, beside a directory `photos`. Each must succeed,
/// and print the lines that the document shows.
#[track_caller]
fn run(document: &str) {
    let scratch = Scratch::new();
    let photos = scratch.path().join("photos");
    fs::create_dir(&photos).unwrap();
    fs::write(photos.join("beach.jpg"), vec![7; 300_000]).unwrap();
    fs::write(photos.join("notes.txt"), "bread, butter\n").unwrap();
    let programs = scratch.path().join(".bin");
    fs::create_dir(&programs).unwrap();
    symlink(env!("CARGO_BIN_EXE_larder"), programs.join("larder")).unwrap();

    let shown = shown(document);
    assert!(!shown.is_empty(), "the document has commands");
    let commands = shown.iter().map(|shown| format!("echo '{MARK}'\n{}\n", shown.command));
    let commands = commands.collect::<Vec<_>>().concat();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let _unmounting = Unmounting(scratch.path());
    let mut shell = Command::new("bash");
    shell.args(["-e", "-o", "pipefail", "-c", &commands]);
    let said = succeed(shell.current_dir(scratch.path()).env("PATH", path));

    for (shown, said) in shown.iter().zip(said.split(MARK).skip(1)) {
        let mut said = said.lines();
        for line in &shown.output {
            assert!(said.any(|said| said == *line), "{}: no {line:?}", shown.command);
        }
    }
}

/// Unmounts what a failed command left mounted in a directory.
struct Unmounting<'s>(&'s Path);

impl Drop for Unmounting<'_> {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.0).expect("it is a directory").flatten() {
            let mut umount = Command::new("umount");
            umount.args(["--lazy", "--quiet"]).arg(entry.path()).stderr(Stdio::null());
            umount.status().expect("umount starts");
        }
    }
}

#[test]
fn first_steps() {
    run(include_str!("../../../../docs/first-steps.md"));
}

#[test]
fn backup() {
    run(include_str!("../../../../docs/cookbook/backup.md"));
}

#[test]
fn image_building() {
    run(include_str!("../../../../docs/cookbook/image-building.md"));
}

#[test]
fn rescue() {
    run(include_str!("../../../../docs/cookbook/rescue.md"));
}

#[test]
fn a_broken_file_system() {
    run(include_str!("../../../../docs/rescue.md"));
}

#[test]
fn embedding() {
    run(include_str!("../../../../docs/cookbook/embedding.md"));
}
