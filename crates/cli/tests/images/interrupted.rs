//! Commands that a signal ends: they say so, end by the signal, and leave nothing incomplete. A
//! signal that was ignored from the start stays ignored.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use larder_testkit::Scratch;
use larder_testkit::sparse_file::sparse_copy;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::wait_until;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// What a command that must succeed prints.
#[track_caller]
fn succeed(folder: &Path, words: &str) -> Vec<u8> {
    let mut command = Command::new(LARDER);
    let output = command.args(words.split(' ')).current_dir(folder).output().expect("it starts");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A folder with an image in which `/r` is a read-only snapshot with a file.
fn folder() -> Scratch {
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::write(folder.join("file"), vec![7; 4 << 20]).unwrap();
    succeed(folder, "mkfs -q -b 300M ok.img");
    succeed(folder, "subvolume create ok.img:/s");
    succeed(folder, "cp file ok.img:/s");
    succeed(folder, "subvolume snapshot -r ok.img:/s ok.img:/r");
    scratch
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("it is there");
}

/// The signals in a line of a process's status.
fn signals(child: &Child, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|it| it.strip_prefix(line)).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).unwrap_or(0)
}

const INT: u64 = 1 << 1;

/// At any point of bringing a returned device up to date, a signal loses nothing, and the next
/// command does it again.
#[test]
fn bringing_a_device_up_to_date_may_be_interrupted() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    let content = vec![7; 64 << 20];
    fs::write(folder.join("file"), &content).unwrap();
    succeed(folder, "mkfs -q -d raid1 -m raid1 -b 400M a.img b.img");
    sparse_copy(&folder.join("b.img"), &folder.join("old.img")).unwrap();
    succeed(folder, "cp --device b.img file a.img:/file");
    fs::rename(folder.join("old.img"), folder.join("b.img")).unwrap();

    let mut command = Command::new(LARDER);
    command.args(["touch", "--device", "b.img", "a.img:/file"]).current_dir(folder);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says something");
    assert!(line.contains("device 2 (b.img) missed commits"), "{line}");
    interrupt(&child);
    said.read_to_string(&mut line).expect("it says something");
    let status = child.wait().expect("it ends");
    assert!(status.success() || status.signal() == Some(Signal::INT.as_raw()), "{status}: {line}");

    succeed(folder, "touch --device b.img a.img:/file");
    succeed(folder, "check --check-data-csum a.img b.img");
    fs::remove_file(folder.join("a.img")).unwrap();
    assert!(succeed(folder, "cat --degraded b.img:/file") == content, "b.img lacks data");
}

#[test]
fn a_stream_that_is_not_whole_is_removed() {
    let scratch = folder();
    let folder = scratch.path();
    // The command cannot tell what it sends, and so it waits once the file exists.
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b' '; 4096]).is_ok() {}
    while writer.write(b" ").is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    let mut command = Command::new(LARDER);
    command.args(["send", "-f", "half", "ok.img:/r"]).current_dir(folder).stderr(writer);
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let half = folder.join("half");
    wait_until("the file is there", || half.exists());
    interrupt(&child);
    wait_until("the file is gone", || !half.exists());
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{said}");
    assert!(said.contains("ERROR: interrupted; part of the work may be done\nhalf was removed\n"));
    assert!(!half.exists());
}

#[test]
fn a_stream_that_finds_no_room_is_removed() {
    let scratch = folder();
    let script = format!("ulimit -f 1000; exec {LARDER} send -f half ok.img:/r");
    let mut command = Command::new("bash");
    let output = command.args(["-c", &script]).current_dir(scratch.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert!(!scratch.path().join("half").exists());
}

/// Unpacks an archive into an image, with a signal before it comes. The same entries come so many
/// times, or until the command reads no more.
fn unpack_with_a_signal(folder: &Path, script: &str, line: &str, times: usize) -> Output {
    let archive = succeed(folder, "tar ok.img:/s");
    let last = archive.iter().rposition(|byte| *byte != 0).unwrap();
    let entries = (last + 1).next_multiple_of(512);
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(folder).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    wait_until("its signals are set", || {
        signals(&child, line) & INT != 0
            && fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() == "larder\n"
    });
    interrupt(&child);
    let mut input = child.stdin.take().unwrap();
    let all_came = (1..times).all(|_| input.write_all(&archive[..entries]).is_ok());
    if all_came {
        // Input that comes too late for the command is refused.
        let _ = input.write_all(&archive);
    }
    drop(input);
    child.wait_with_output().unwrap()
}

#[test]
fn a_copy_that_is_interrupted_says_so() {
    let scratch = folder();
    let script = format!("exec {LARDER} cp - ok.img:/");
    let output = unpack_with_a_signal(scratch.path(), &script, "SigCgt:", 1_000_000);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{said}");
    // Something may have been unpacked before the thread for signals ran: it is lost, and said so.
    assert!(said.ends_with("ERROR: ok.img: interrupted; part of the work may be done\n"), "{said}");
    assert_eq!(succeed(scratch.path(), "ls ok.img"), b"r\ns\n");
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let scratch = folder();
    let script = format!("trap '' INT; exec {LARDER} cp - ok.img:/");
    let output = unpack_with_a_signal(scratch.path(), &script, "SigIgn:", 1);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!(succeed(scratch.path(), "ls ok.img"), b"file\nr\ns\n");
}
