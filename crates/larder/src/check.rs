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

use std::ops::ControlFlow;
use std::path::Path;

use larder_check::Stopped;
#[doc(inline)]
pub use larder_check::evidence;
pub use larder_check::{
    AffectedFile, DeviceOffset, Finding, Kind, KindFindings, Options, Phase, Progress, Report,
    Severity, Statistics,
};
use larder_device::{Access, KeptState};
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
    let any_state = larder_volume::OpenOptions { any_state: true, ..Default::default() };
    let volume = Volume::open(devices, &any_state)?;
    check_volume(&volume, options)
}

/// The same for a [kept state](crate::Filesystem::keep_state), while the file system is in use.
/// Devices may be missing, as long as everything can be read without them.
///
/// # Errors
/// Those of [`check`], and [`Stale`](crate::ErrorKind::Stale) if the state ended meanwhile.
pub fn check_kept(state: &KeptState, options: &Options<'_>) -> Result<Report> {
    let goes_on = |now: Progress| match (state.ended(), options.progress) {
        (Some(_), _) => ControlFlow::Break(()),
        (None, Some(progress)) => progress(now),
        (None, None) => ControlFlow::Continue(()),
    };
    let options = Options { progress: Some(&goes_on), ..*options };
    let degraded = larder_volume::OpenOptions { degraded: true, ..Default::default() };
    let checked = Volume::open(state.devices(), &degraded)
        .map_err(Error::from)
        .and_then(|volume| check_volume(&volume, &options));
    match state.ended() {
        Some(reason) => Err(Error::StateEnded(reason.to_owned())),
        None => checked,
    }
}

fn check_volume(volume: &Volume, options: &Options<'_>) -> Result<Report> {
    larder_check::check(volume, options).map_err(|Stopped| Error::Interrupted)
}
