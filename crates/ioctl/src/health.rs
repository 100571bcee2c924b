//! The health of a mounted file system.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::abi::{
    DEV_STATS, DEV_STATS_RESET, DevStatsArgs, GET_DEV_STATS, HEALTH, HEALTH_VERSION, HealthArgs,
    METRICS, METRICS_VERSION, MetricsArgs,
};
use crate::call;
use crate::invalid::invalid;

/// The number of errors of a device since they were last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceErrors {
    /// Writes that failed.
    pub writes: u64,
    /// Reads that failed.
    pub reads: u64,
    /// Flushes that failed.
    pub flushes: u64,
    /// Checksums and structures that were wrong.
    pub corruptions: u64,
    /// Tree blocks of another generation than expected.
    pub generations: u64,
}

/// The health of a Larder mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The transaction of the last commit.
    pub generation: u64,
    /// The time of the last commit, if there was one since the mount.
    pub committed_at: Option<SystemTime>,
    /// When and why it became read-only, if an error made it so.
    pub made_read_only: Option<(SystemTime, String)>,
    /// Why requests of a device wait at this time, if any does.
    pub waits: Option<String>,
    /// Bad copies that were overwritten with good content since the mount.
    pub healed_copies: u64,
}

/// The numbers of errors of the device with id `devid`. With `reset`, which needs root, they
/// restart from zero.
pub fn device_errors(inside: impl AsFd, devid: u64, reset: bool) -> io::Result<DeviceErrors> {
    let flags = if reset { DEV_STATS_RESET } else { 0 };
    let nr_items = DEV_STATS as u64;
    let mut args = DevStatsArgs { devid, nr_items, flags, ..DevStatsArgs::new_zeroed() };
    call::update::<GET_DEV_STATS, _>(inside, &mut args)?;
    let [writes, reads, flushes, corruptions, generations] = args.values;
    Ok(DeviceErrors { writes, reads, flushes, corruptions, generations })
}

/// The health of the Larder mount that `inside` lies in; `None` if it is another file system.
pub fn health(inside: impl AsFd) -> io::Result<Option<Health>> {
    let args: HealthArgs = match call::read::<HEALTH, _>(inside) {
        Ok(args) => args,
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
                _ => Err(error),
            };
        }
    };
    if args.version != HEALTH_VERSION {
        return Err(invalid("the server of the mount is of another version of larder"));
    }
    let reason = args.reason.get(..args.reason_len as usize).ok_or(invalid("a reason"))?;
    let reason = String::from_utf8_lossy(reason).into_owned();
    let made_read_only = time(args.made_read_only_at);
    Ok(Some(Health {
        generation: args.generation,
        committed_at: time(args.committed_at),
        waits: (made_read_only.is_none() && !reason.is_empty()).then(|| reason.clone()),
        made_read_only: made_read_only.map(|since| (since, reason)),
        healed_copies: args.healed_copies,
    }))
}

/// The metrics of the Larder mount that `inside` lies in, in the text format of Prometheus.
pub fn metrics(inside: impl AsFd) -> io::Result<String> {
    let args: MetricsArgs = call::read::<METRICS, _>(inside)?;
    let text = args.text.get(..args.text_len as usize).filter(|_| args.version == METRICS_VERSION);
    let other = invalid("the server of the mount is of another version of larder");
    Ok(String::from_utf8_lossy(text.ok_or(other)?).into_owned())
}

fn time(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).filter(|_| seconds != 0)
}
