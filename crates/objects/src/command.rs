//! Commands of users.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Command, Stdio};

use larder_platform::errno::in_words;
use zeroize::Zeroizing;

/// The longest output that is of use.
pub(crate) const MOST_BYTES: u64 = 64 << 10;

/// What there is to read, up to a bit more than is of use.
pub(crate) fn at_most(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut secret = Zeroizing::new(Vec::new());
    from.take(MOST_BYTES + 3).read_to_end(&mut secret)?;
    Ok(secret)
}

/// What a command for the shell writes to its standard output. An error names the command.
pub(crate) fn output_of(command: &OsStr) -> Result<Zeroizing<Vec<u8>>, String> {
    let (shell, option) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let failed = |error: io::Error| format!("'{}': {}", command.display(), in_words(&error));
    let mut child = Command::new(shell)
        .args([OsStr::new(option), command])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().map_or_else(|| Ok(Zeroizing::default()), at_most);
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(format!("'{}' failed: {status}", command.display()));
    }
    output.map_err(failed)
}
