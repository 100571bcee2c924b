//! Commits that are checked as they are made, in debug builds.

use std::num::NonZeroU64;

use larder_device::KeptState;
use larder_filesystem::Filesystem;

use crate::check::{Kind, Options, check_kept};

/// The variable that asks for it: every so many commits.
const VARIABLE: &str = "LARDER_CHECK_EVERY";

/// Checks the kept state of every n-th commit that callers ask for, with `every` or the variable.
///
/// # Panics
/// The file system panics when a commit has left damage.
pub(crate) fn start(filesystem: &Filesystem, every: Option<NonZeroU64>) {
    if !cfg!(debug_assertions) {
        return;
    }
    let of_variable = || std::env::var(VARIABLE).ok()?.parse().ok();
    if let Some(every) = every.or_else(of_variable) {
        filesystem.inspect_commits(every, check);
    }
}

fn check(state: &KeptState) {
    let checked = check_kept(state, &Options::default());
    if state.ended().is_some() {
        // A writer needed its space: nothing is known of it.
        return;
    }
    let report = checked.unwrap_or_else(|error| panic!("a commit cannot be checked: {error}"));
    // A device may be missing from the beginning.
    let damage = report.count() - report.count_of(Kind::MissingDevice);
    assert_eq!(damage, 0, "a commit left damage:\n{report}");
}
