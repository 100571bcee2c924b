//! What a scrub has met, as the kernel's requests have it.

use larder::ScrubCounters;
use larder_ioctl::ScrubProgress;

/// The counters of a scrub as `struct btrfs_scrub_progress`.
pub fn scrub_progress(counters: &ScrubCounters) -> ScrubProgress {
    ScrubProgress {
        data_extents_scrubbed: counters.data_extents_scrubbed,
        tree_extents_scrubbed: counters.tree_extents_scrubbed,
        data_bytes_scrubbed: counters.data_bytes_scrubbed,
        tree_bytes_scrubbed: counters.tree_bytes_scrubbed,
        read_errors: counters.read_errors,
        csum_errors: counters.csum_errors,
        verify_errors: counters.verify_errors,
        no_csum: counters.no_csum,
        csum_discards: 0,
        super_errors: counters.super_errors,
        malloc_errors: 0,
        uncorrectable_errors: counters.uncorrectable_errors,
        corrected_errors: counters.corrected_errors,
        last_physical: counters.last_physical,
        unverified_errors: counters.unverified_errors,
    }
}
