//! What the tests of this crate share.

use std::path::PathBuf;
use std::sync::Arc;

use larder_check::{Options, Report};
use larder_device::{Access, Device, FileDevice};
use larder_volume::{OpenOptions, Volume};

/// Opens image files for reading, also when some are missing.
pub(crate) fn open(files: &[PathBuf]) -> Volume {
    let open = |file: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(file, Access::ReadOnly).expect("an image file opens"))
    };
    let options = OpenOptions { degraded: true, ..OpenOptions::default() };
    Volume::open(files.iter().map(open).collect(), &options).expect("the volume opens")
}

/// Checks image files, data included.
pub(crate) fn check(files: &[PathBuf]) -> Report {
    let options = Options { check_data_csum: true, threads: 2, ..Options::default() };
    larder_check::check(&open(files), &options)
}
