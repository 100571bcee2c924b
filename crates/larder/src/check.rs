//! Whether a file system is sound: an independent reader that reads everything and compares what is
//! stored twice. It changes nothing.
//!
//! ```no_run
//! # fn main() -> Result<(), larder::Error> {
//! let report = larder::check::check(["disk.img"], &Default::default())?;
//! print!("{report}");
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;

use larder_check::Stopped;
pub use larder_check::{
    AffectedFile, DeviceOffset, Finding, Kind, KindFindings, Options, Phase, Progress, Report,
    Severity, Statistics,
};
use larder_device::{Access, Device};
use larder_image::Place;
use larder_volume::Volume;

use crate::{Error, Result};

/// Checks the file system on the image files and block devices at `paths`, in any order. The report
/// lists all that is wrong with it. No program must change it meanwhile.
///
/// # Errors
/// If its devices or its chunk tree cannot be read, so that nothing can be checked;
/// [`Interrupted`](crate::ErrorKind::Interrupted) if [`Options::progress`] stopped it.
pub fn check<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    options: &Options<'_>,
) -> Result<Report> {
    let open = |path: P| larder_image::open(path.as_ref(), Access::ReadOnly, Place::Found);
    let devices = paths.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let volume = Volume::open(devices, &larder_volume::OpenOptions::default())?;
    larder_check::check(&volume, options).map_err(|Stopped| Error::Interrupted)
}

/// The same for the file system on `devices`, in any order: for example those of a
/// [kept state](crate::Filesystem::keep_state). Some may be missing, as long as everything can be
/// read without them.
pub fn check_devices(devices: Vec<Arc<dyn Device>>, options: &Options<'_>) -> Result<Report> {
    let degraded = larder_volume::OpenOptions { degraded: true, ..Default::default() };
    let volume = Volume::open(devices, &degraded)?;
    larder_check::check(&volume, options).map_err(|Stopped| Error::Interrupted)
}
