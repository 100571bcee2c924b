//! Running larder.

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

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

/// Waits for up to a minute.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("not in a minute: {what}");
}
