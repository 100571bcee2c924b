//! An independent reader that proves a btrfs file system sound.
//!
//! [`check`] reads every tree of a [`Volume`] with its own code, compares everything that is stored
//! twice, and returns a [`Report`] of mismatches. It changes nothing.
//!
//! How it works, in the order of reading:
//! 1. Superblocks; then the root tree, which lists the other trees.
//! 2. `blocks`: a *forest* of all trees is grown from their roots, each block read and verified
//!    once, all copies of it.
//! 3. `space`, `extents`, `checksums`: trees that describe space are streamed in key order. Extents
//!    become a table of small records, each with a running balance of references.
//! 4. `files`: leaves of file trees are read in parallel, in order of addresses. Items of one inode
//!    are compared exactly; relations between inodes as sums of fingerprints, which snapshots
//!    share.
//! 5. `log`: a log must have what its replay needs.
//! 6. Where a balance or a sum is not zero, a second reading finds out exactly what differs.
//! 7. `locate`: finds the files and the places on devices of each finding.
//!
//! # Invariants
//! * Uses no code that writes or caches trees: the check is the second opinion on that code.
//! * Sound file systems have no findings. Neither have those that a power cut leaves: superblock
//!   copies of two commits, a log with data that only it names, inodes and subvolumes that are partly
//!   deleted, a relocation that was interrupted. Neither have metadata dumps, and those that tools
//!   leave without some copies of the superblock. A device whose
//!   superblocks are all one commit old is a finding only if it lacks a tree block of the last
//!   commit; otherwise the report says that its data without checksums was not judged.
//! * It finds what the kernel refuses to read: each block must pass the kernel's rules, too.
//! * No input makes it panic or loop. The image bounds its memory: at most about 1 KiB for each
//!   leaf, 80 bytes for each extent item, 100 for each pointer to a block, and the findings that
//!   are kept. Only the second reading of a tree with broken relations keeps more: about 50 bytes
//!   for each of its names.
//! * A finding says what was found, what was expected and where as values ([`evidence`]): its text
//!   follows from them.
//! * The most basic check that sees a damage reports it. The consequences of unreadable parts are
//!   not reported again.
#![forbid(unsafe_code)]

mod behind;
mod blocks;
mod checksums;
mod context;
pub mod evidence;
mod extents;
mod files;
mod fingerprint;
mod locate;
mod log;
mod parallel;
mod progress;
mod quota;
mod report;
mod roots;
mod run;
mod space;
mod subvolumes;
mod superblocks;

use std::ops::ControlFlow;

use larder_volume::Volume;

pub use progress::{Phase, Progress, Stopped};
pub use report::{
    AffectedFile, DeviceOffset, Finding, Kind, KindFindings, Location, Repair, Report, Severity,
    Statistics,
};

/// What to check, and how.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Also read all data that has checksums, and parity: every copy.
    pub check_data_csum: bool,
    /// Threads that read and compare; 0 means one for each processor.
    pub threads: usize,
    /// Most findings of one kind to keep. The others are only counted.
    pub kept_per_kind: usize,
    /// Told from any thread how far the check has come. Its answer is whether the check goes on.
    pub progress: Option<&'a (dyn Fn(Progress) -> ControlFlow<()> + Sync)>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { check_data_csum: false, threads: 0, kept_per_kind: 100, progress: None }
    }
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("check_data_csum", &self.check_data_csum)
            .field("threads", &self.threads)
            .field("kept_per_kind", &self.kept_per_kind)
            .finish_non_exhaustive()
    }
}

/// Checks a file system. The report lists all that is wrong with it. The volume must not change
/// meanwhile.
///
/// A file system that cannot be opened as a volume cannot be checked: a command says so with exit
/// code 2.
///
/// # Errors
/// [`Stopped`] if [`Options::progress`] said so. Nothing else fails.
pub fn check(volume: &Volume, options: &Options<'_>) -> Result<Report, Stopped> {
    run::run(volume, options)
}
