//! What a scrub has met so far, as the kernel counts it.

use parking_lot::Mutex;

/// The counters of `struct btrfs_scrub_progress`, and more. Errors are counted in sectors, for tree
/// blocks too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data extents; each counts once for each 64 KiB of the chunk that it touches.
    pub data_extents_scrubbed: u64,
    /// Tree blocks.
    pub tree_extents_scrubbed: u64,
    /// Bytes of data.
    pub data_bytes_scrubbed: u64,
    /// Bytes of tree blocks.
    pub tree_bytes_scrubbed: u64,
    /// Sectors that the device cannot read.
    pub read_errors: u64,
    /// Sectors of data that do not match their checksums.
    pub csum_errors: u64,
    /// Sectors of tree blocks whose checksum, address or generation is wrong.
    pub verify_errors: u64,
    /// Sectors of data without checksums.
    pub no_csum: u64,
    /// Superblocks that are bad.
    pub super_errors: u64,
    /// Bad sectors without a good copy.
    pub uncorrectable_errors: u64,
    /// Bad sectors that have a good copy. They were repaired, unless the scrub changes nothing.
    pub corrected_errors: u64,
    /// Bad sectors whose blocks were freed before they could be judged.
    pub unverified_errors: u64,
    /// The address after the last that was scrubbed.
    pub last_physical: u64,
    /// Sectors without checksums of which copies differ. The kernel does not look for these.
    pub differing_sectors: u64,
    /// Cells of parity that do not fit their data. The kernel does not count these.
    pub parity_errors: u64,
}

impl Counters {
    /// Bytes of data and tree blocks.
    pub fn bytes_scrubbed(&self) -> u64 {
        self.data_bytes_scrubbed + self.tree_bytes_scrubbed
    }

    /// Adds all counts of `more`. The address stays.
    pub fn add(&mut self, more: &Self) {
        self.data_extents_scrubbed += more.data_extents_scrubbed;
        self.tree_extents_scrubbed += more.tree_extents_scrubbed;
        self.data_bytes_scrubbed += more.data_bytes_scrubbed;
        self.tree_bytes_scrubbed += more.tree_bytes_scrubbed;
        self.read_errors += more.read_errors;
        self.csum_errors += more.csum_errors;
        self.verify_errors += more.verify_errors;
        self.no_csum += more.no_csum;
        self.super_errors += more.super_errors;
        self.uncorrectable_errors += more.uncorrectable_errors;
        self.corrected_errors += more.corrected_errors;
        self.unverified_errors += more.unverified_errors;
        self.differing_sectors += more.differing_sectors;
        self.parity_errors += more.parity_errors;
    }
}

/// Counters that other threads look at while they rise.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Counters>);

impl Progress {
    /// The counters now.
    pub fn get(&self) -> Counters {
        *self.0.lock()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.0.lock());
    }
}
