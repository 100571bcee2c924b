//! `fsck.btrfs`, which systems call before they mount: it checks nothing, since a file system that
//! was not unmounted needs no repair.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use crate::outcome::OPERATION_FAILED;
use crate::output::stdout;

/// `fsck.btrfs [-aApy] DEVICE`: without an option that forbids questions it names the command that
/// checks.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let is_option = |word: &&OsString| word.as_bytes().starts_with(b"-") && word.len() > 1;
    let options = arguments.iter().take_while(is_option);
    let asks_nothing = |word: &OsString| word.as_bytes().iter().any(|flag| b"aApy".contains(flag));
    let is_quiet = options.clone().any(asks_nothing);
    let device = arguments.iter().skip(options.count()).next_back();
    if let Some(device) = device.filter(|device| !Path::new(device).exists()) {
        let _ = writeln!(stdout(), "fsck.btrfs: {} does not exist", device.display());
        return ExitCode::from(OPERATION_FAILED);
    }
    if !is_quiet {
        let _ = writeln!(stdout(), "fsck.btrfs checks nothing; 'btrfs check DEVICE' does.");
    }
    ExitCode::SUCCESS
}
