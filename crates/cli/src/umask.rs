//! The umask of this process.

use rustix::fs::Mode;

/// The umask. Reading it means setting it: no other way works everywhere.
pub fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}
