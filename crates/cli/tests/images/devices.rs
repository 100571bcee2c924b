//! File systems on several devices, and the messages of commands about them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use larder_testkit::Scratch;

fn larder<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder")).args(arguments).output().expect("larder starts")
}

/// The standard error of a command that must succeed.
#[track_caller]
fn said<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let output = larder(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    said
}

fn word(path: &Path) -> &str {
    path.to_str().expect("paths here are text")
}

#[test]
fn a_device_that_returns_is_named() {
    let scratch = Scratch::new();
    let devices = ["first", "second"].map(|name| scratch.sparse_file(name, 256 << 20));
    let [first, second] = devices.each_ref().map(|device| word(device));
    said(["mkfs", "-d", "raid1", "-m", "raid1", first, second]);
    let missing = said(["mkdir", "--degraded", &format!("{first}:/one")]);
    assert!(missing.contains("WARNING: device 2") && missing.contains("is missing"), "{missing}");
    let other = format!("--device={second}");
    let back = said(["mkdir", &other, &format!("{first}:/two")]);
    let expected = format!("device 2 ({second}) now gets the commits that it missed");
    assert!(back.contains(&expected), "{back}");
    assert_eq!(said(["mkdir", &other, &format!("{first}:/three")]), "");
    let alone = said(["ls", "--degraded", &format!("{second}:/three")]);
    assert!(!alone.contains("missed"), "{alone}");
}

#[test]
fn an_operand_given_twice_is_refused() {
    let scratch = Scratch::new();
    let device = scratch.sparse_file("device", 256 << 20);
    said(["mkfs", word(&device)]);
    let copy = scratch.path().join("copy");
    std::fs::copy(&device, &copy).expect("it is copied");
    let ls = |other: &Path| {
        let other = format!("--device={}", word(other));
        let refused = larder(["ls", &other, &format!("{}:/", word(&device))]);
        assert!(!refused.status.success());
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let twice = ls(&device);
    assert!(twice.contains(&format!("{} is given twice", word(&device))), "{twice}");
    let both = ls(&copy);
    assert!(both.contains("both are device 1: give one of them"), "{both}");
}
