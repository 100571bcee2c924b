//! Which snapshots of a series stay, and what they are called.

use std::collections::HashSet;
use std::str::FromStr;

use anyhow::{Context, bail};
use jiff::civil::DateTime;
use larder_objects::parse_seconds;

/// How a name says its time, after the prefix.
const STAMP: &str = "%Y%m%dT%H%M%S";

/// What is kept: `all=1h hourly=24 daily=7 weekly=4 monthly=12 yearly=3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// All that are younger, in seconds.
    all_seconds: u64,
    /// The newest in each of so many periods that have any.
    periods: Vec<(Period, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Period {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Period {
    fn named(name: &str) -> Option<Self> {
        let names = [
            ("hourly", Self::Hour),
            ("daily", Self::Day),
            ("weekly", Self::Week),
            ("monthly", Self::Month),
            ("yearly", Self::Year),
        ];
        names.into_iter().find(|(known, _)| *known == name).map(|(_, period)| period)
    }

    /// What times in the same period share.
    fn of(self, time: DateTime) -> (i16, i16, i8) {
        let week = time.date().iso_week_date();
        match self {
            Self::Hour => (time.year(), time.date().day_of_year(), time.hour()),
            Self::Day => (time.year(), time.date().day_of_year(), 0),
            Self::Week => (week.year(), week.week().into(), 0),
            Self::Month => (time.year(), time.month().into(), 0),
            Self::Year => (time.year(), 0, 0),
        }
    }
}

impl FromStr for Retention {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut retention = Self { all_seconds: 0, periods: Vec::new() };
        for word in text.split_whitespace() {
            let (name, value) =
                word.split_once('=').with_context(|| format!("'{word}': daily=7, for example"))?;
            if name == "all" {
                let seconds = parse_seconds(value).map_err(anyhow::Error::msg);
                retention.all_seconds = seconds.with_context(|| format!("'{word}'"))?;
            } else if let Some(period) = Period::named(name) {
                let count = value.parse().with_context(|| format!("'{word}'"))?;
                retention.periods.push((period, count));
            } else {
                bail!(
                    "'{word}': all=TIME, hourly=N, daily=N, weekly=N, monthly=N and yearly=N are known"
                );
            }
        }
        if retention.all_seconds == 0 && retention.periods.iter().all(|(_, count)| *count == 0) {
            bail!("it keeps nothing; daily=7, for example, keeps the newest of seven days");
        }
        Ok(retention)
    }
}

impl Retention {
    /// Those of `times` that do not stay, if it is `now`. The newest always stays.
    pub fn stale(&self, now: DateTime, times: &[DateTime]) -> Vec<DateTime> {
        let mut newest_first = times.to_vec();
        newest_first.sort_by(|a, b| b.cmp(a));
        let is_young = |time: DateTime| {
            let age = now.duration_since(time).as_secs();
            u64::try_from(age).is_ok_and(|age| age <= self.all_seconds) || age < 0
        };
        let mut kept: HashSet<DateTime> =
            newest_first.iter().copied().filter(|time| is_young(*time)).collect();
        kept.extend(newest_first.first());
        for (period, count) in &self.periods {
            let mut met = HashSet::new();
            for time in &newest_first {
                if met.len() < *count && met.insert(period.of(*time)) {
                    kept.insert(*time);
                }
            }
        }
        newest_first.into_iter().filter(|time| !kept.contains(time)).collect()
    }
}

/// The name of the snapshot that is taken at `time`.
pub fn name_at(prefix: &str, time: DateTime) -> String {
    format!("{prefix}{}", time.strftime(STAMP))
}

/// The time in a name that [`name_at`] gives with this prefix; `None` of any other name.
pub fn time_in(prefix: &str, name: &str) -> Option<DateTime> {
    let time = DateTime::strptime(STAMP, name.strip_prefix(prefix)?).ok()?;
    (name_at(prefix, time) == name).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime {
        text.parse().unwrap()
    }

    #[test]
    fn the_newest_of_each_period_stays() {
        let times = [
            "2026-11-01T12:00:00",
            "2026-11-20T12:00:00",
            "2026-11-27T06:00:00",
            "2026-11-27T18:00:00",
            "2026-11-28T10:00:00",
            "2026-11-28T19:30:00",
            "2026-11-28T19:59:00",
            "2026-11-28T20:00:00",
        ]
        .map(at);
        let stale = |policy: &str| {
            let retention: Retention = policy.parse().unwrap();
            let mut stale = retention.stale(at("2026-11-28T20:00:01"), &times);
            stale.sort();
            stale
        };
        assert_eq!(stale("daily=3"), [times[0], times[2], times[4], times[5], times[6]]);
        assert_eq!(stale("all=1h"), times[..5]);
        assert_eq!(stale("all=1h daily=2 weekly=2 monthly=5"), [times[0], times[2], times[4]]);
        assert_eq!(stale("yearly=1"), times[..7]);
        assert_eq!(stale("hourly=100"), [times[5]]);
    }

    #[test]
    fn policies_that_keep_nothing_or_say_nothing_are_refused() {
        let refused = |text: &str| text.parse::<Retention>().unwrap_err().to_string();
        assert!(refused("").contains("keeps nothing") && refused("daily=0").contains("nothing"));
        assert!(refused("daily").contains("daily=7") && refused("often=3").contains("'often=3'"));
        assert!(refused("daily=x").contains("'daily=x'") && refused("all=x").contains("'all=x'"));
    }

    #[test]
    fn only_names_of_the_series_have_a_time() {
        let time = at("2026-11-28T20:00:01");
        assert_eq!(name_at("home-", time), "home-20261128T200001");
        assert_eq!(time_in("home-", "home-20261128T200001"), Some(time));
        for other in ["home-20261128T200001x", "home-", "20261128T200001", "home-2026", "x"] {
            assert_eq!(time_in("home-", other), None, "{other}");
        }
    }
}
