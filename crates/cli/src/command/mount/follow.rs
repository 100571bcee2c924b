//! A mount for reading that shows what somebody else writes to object storage.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{bail, ensure};
use larder::OpenOptions;
use larder_fuse::Mount;
use larder_objects::Address;

/// An older state is shown for so long, if the user does not say.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Checks that a writer of `devices` can be followed.
pub fn check(devices: &[PathBuf]) -> anyhow::Result<()> {
    let [device] = devices else {
        bail!("follow: a file system on several devices has no one newest state");
    };
    let shown = device.display();
    ensure!(
        larder_objects::is_url(device.as_os_str()),
        "{shown}: follow is for file systems on object storage; give a URL, such as s3://BUCKET/PREFIX"
    );
    let text: &OsStr = device.as_os_str();
    let address: Option<Address> = text.to_str().and_then(|text| text.parse().ok());
    ensure!(
        address.is_none_or(|address| address.state.is_none()),
        "{shown}: a kept state never changes; follow goes with a URL without '@' and what follows"
    );
    Ok(())
}

/// Makes `mount` show the newest state, opened as `open` says, with pauses of `pause`, until nobody
/// can send to `ends` any more.
pub fn keep_following(mount: &Mount, open: &OpenOptions, pause: Duration, ends: &Receiver<()>) {
    let mut is_behind = false;
    while ends.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        match mount.follow(open) {
            Err(reason) if !is_behind => {
                tracing::warn!("an earlier state is still shown: {reason}");
                is_behind = true;
            }
            Ok(()) if is_behind => {
                tracing::info!("the newest state is shown again");
                is_behind = false;
            }
            _ => {}
        }
    }
}
