//! How many files a server may have open.

use anyhow::ensure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A server needs a dozen besides its devices, and further ones for threads, clients and mounts.
const LEAST: u64 = 64;

/// Lets this process, and those that it starts, have as many files open as they may have.
///
/// # Errors
/// That is too few: a server that cannot open a file cannot even unmount.
pub fn allow_all() -> anyhow::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // It stays as it is if this fails.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current };
    ensure!(
        limit.is_none_or(|limit| limit >= LEAST),
        "only {} files may be open at a time, and a mount needs {LEAST}: raise the limit with \
         'ulimit -n'",
        limit.unwrap_or_default()
    );
    Ok(())
}
