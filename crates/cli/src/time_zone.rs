//! The time zone of the user, as `TZ` or the system says it.

use std::env;
use std::sync::LazyLock;

use anyhow::anyhow;
use jiff::tz::TimeZone;

use crate::message::message;

/// The time zone for times that the user gives.
///
/// # Errors
/// `TZ` names none that this system knows: a stored time would be wrong by hours.
pub fn time_zone() -> anyhow::Result<TimeZone> {
    match env::var_os("TZ").filter(|name| !name.is_empty()) {
        // Without any, as in a small container, it is UTC.
        None => Ok(TimeZone::system()),
        Some(name) => TimeZone::try_system().map_err(|_| {
            anyhow!("TZ={}: this system knows no such time zone (package tzdata)", name.display())
        }),
    }
}

/// The time zone for times that are shown.
pub static SHOWN: LazyLock<TimeZone> = LazyLock::new(|| {
    time_zone().unwrap_or_else(|error| {
        eprintln!("WARNING: {}; times are in UTC", message(&error));
        TimeZone::UTC
    })
});
