//! Running larder.

use std::ffi::OsStr;
use std::process::{Command, Output};

pub(crate) fn larder<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder")).args(arguments).output().expect("larder starts")
}

/// The output of a command line that must succeed.
#[track_caller]
pub(crate) fn succeed(line: &str) -> String {
    let output = larder(line.split(' '));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The message of a command line that must fail.
#[track_caller]
pub(crate) fn fail(line: &str) -> String {
    let output = larder(line.split(' '));
    assert!(!output.status.success(), "{line}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}
