//! Errors of devices, and the health of the file system.

use std::time::{SystemTime, UNIX_EPOCH};

use larder_ioctl::abi::{
    DEV_STATS, DEV_STATS_RESET, DevStatsArgs, HEALTH_VERSION, HealthArgs, METRICS_BYTES,
    METRICS_VERSION, MetricsArgs, REASON_BYTES,
};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use zerocopy::FromZeros;

use super::call::Ioctl;
use crate::server::call::{Outcome, failed};

/// The error counts of a device. A caller with `CAP_SYS_ADMIN` can reset them.
pub(super) fn device_errors(ioctl: &mut Ioctl<'_>) -> Outcome {
    let asked: DevStatsArgs = ioctl.input()?;
    let errors = if asked.flags & DEV_STATS_RESET == 0 {
        let all = ioctl.server.filesystem.device_errors().map_err(failed)?;
        all.into_iter().find(|errors| errors.id == asked.devid)
    } else {
        ioctl.check_may(CapabilitySet::SYS_ADMIN)?;
        ioctl.server.filesystem.reset_device_errors(asked.devid).map_err(failed)?
    };
    let errors = errors.ok_or(Errno::NODEV)?;
    let ours =
        [errors.writes, errors.reads, errors.flushes, errors.corruptions, errors.generations];
    let count = asked.nr_items.min(DEV_STATS as u64);
    let mut values = asked.values;
    values[..count as usize].copy_from_slice(&ours[..count as usize]);
    ioctl.output(&DevStatsArgs { nr_items: count, values, ..asked })
}

pub(super) fn health(ioctl: &mut Ioctl<'_>) -> Outcome {
    let health = ioctl.server.health();
    let made_read_only = health.made_read_only;
    let since = made_read_only.as_ref().map(|made| made.since);
    // A reason without a time is why requests wait.
    let reason = made_read_only.map(|made| made.reason).or(health.waits).unwrap_or_default();
    let most = REASON_BYTES.min(reason.len());
    let reason_len = (0..=most).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
    let mut args = HealthArgs {
        version: HEALTH_VERSION,
        reason_len: reason_len as u32,
        generation: health.generation,
        committed_at: seconds(health.committed_at),
        made_read_only_at: seconds(since),
        healed_copies: health.healed_copies,
        ..HealthArgs::new_zeroed()
    };
    args.reason[..reason_len].copy_from_slice(&reason.as_bytes()[..reason_len]);
    ioctl.output(&args)
}

pub(super) fn metrics(ioctl: &mut Ioctl<'_>) -> Outcome {
    let text = ioctl.server.metrics();
    let most = METRICS_BYTES.min(text.len());
    // The text is ASCII.
    let mut args = MetricsArgs {
        version: METRICS_VERSION,
        text_len: most as u32,
        ..MetricsArgs::new_zeroed()
    };
    args.text[..most].copy_from_slice(&text.as_bytes()[..most]);
    ioctl.output(&args)
}

/// Seconds since 1970, 0 if there is no time.
fn seconds(time: Option<SystemTime>) -> u64 {
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs().max(1))
}
