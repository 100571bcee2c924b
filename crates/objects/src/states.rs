//! States: what the device held after a flush. A policy decides which are kept.

use std::fmt;
use std::str::FromStr;

use crate::codec::{Decoder, Encoder, Malformed};
use crate::quantity::{DAY, HOUR, MINUTE, Seconds, parse_seconds};

/// More states than that are thinned out to one a minute, whatever the policy says: each flush
/// makes one, and the manifest must stay small.
const MOST_OF_ALL: usize = 256;

/// A state, which a flush or a commit made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Its number. Each state has the next one.
    pub number: u64,
    /// When it was made, in seconds since 1970, by the clock of the store.
    pub time: u64,
}

/// How long states are kept, in seconds: all of them, then one for each hour, then one for each
/// day. The last state is always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// All states that are younger.
    pub all: u64,
    /// The last of each hour.
    pub hourly: u64,
    /// The last of each day.
    pub daily: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { all: HOUR, hourly: DAY, daily: 30 * DAY }
    }
}

impl Policy {
    /// Which of `states`, in their order, are kept at the time `now`.
    pub(crate) fn kept(&self, states: &[State], now: u64) -> Vec<bool> {
        let young = states.iter().filter(|state| now.saturating_sub(state.time) < self.all);
        let is_crowded = young.count() > MOST_OF_ALL;
        // What a state has in common with others of which only the last is kept.
        let period = |state: &State| {
            let age = now.saturating_sub(state.time);
            if age < self.all && !is_crowded {
                Some((1, state.number))
            } else if age < self.all {
                Some((MINUTE, state.time / MINUTE))
            } else if age < self.hourly {
                Some((HOUR, state.time / HOUR))
            } else if age < self.daily {
                Some((DAY, state.time / DAY))
            } else {
                None
            }
        };
        let periods: Vec<_> = states.iter().map(period).collect();
        let is_last = |(at, period): (usize, &Option<_>)| {
            at + 1 == periods.len() || (period.is_some() && periods[at + 1] != *period)
        };
        periods.iter().enumerate().map(is_last).collect()
    }

    /// When each of `states` ends, in seconds since 1970, if no others follow. The last one stays.
    pub fn ends(&self, states: &[State]) -> Vec<Option<u64>> {
        let ages = [self.all, self.hourly, self.daily];
        let later = |state: &State| ages.map(|age| state.time.saturating_add(age));
        let mut times: Vec<u64> = states.iter().flat_map(later).collect();
        times.sort_unstable();
        times.dedup();
        let mut ends = vec![None; states.len()];
        let mut left: Vec<usize> = (0..states.len()).collect();
        for time in times {
            let still_there: Vec<State> = left.iter().map(|at| states[*at]).collect();
            let mut kept = self.kept(&still_there, time).into_iter();
            left.retain(|at| {
                let is_kept = kept.next().expect("one for each");
                if !is_kept {
                    ends[*at] = Some(time);
                }
                is_kept
            });
        }
        ends
    }

    pub(crate) fn encode(&self, to: &mut Encoder) {
        for seconds in [self.all, self.hourly, self.daily] {
            to.number(seconds);
        }
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Self { all: from.number()?, hourly: from.number()?, daily: from.number()? })
    }
}

/// `all=1h,hourly=1d,daily=30d`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, hourly, daily } = self;
        let (all, hourly, daily) = (Seconds(*all), Seconds(*hourly), Seconds(*daily));
        write!(f, "all={all},hourly={hourly},daily={daily}")
    }
}

impl FromStr for Policy {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes. What is not named is not kept.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut policy = Self { all: 0, hourly: 0, daily: 0 };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, time) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' is not all=, hourly= or daily= and a time"))?;
            let field = match name {
                "all" => &mut policy.all,
                "hourly" => &mut policy.hourly,
                "daily" => &mut policy.daily,
                _ => return Err(format!("'{name}' is none of all, hourly and daily")),
            };
            *field = parse_seconds(time)?;
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(policy: Policy, ages: &[u64]) -> Vec<u64> {
        let now = 1_000 * DAY;
        let state = |(number, age): (usize, &u64)| State { number: number as u64, time: now - age };
        let states: Vec<_> = ages.iter().enumerate().map(state).collect();
        let kept = policy.kept(&states, now);
        ages.iter().zip(kept).filter(|(_, kept)| *kept).map(|(age, _)| *age).collect()
    }

    #[test]
    fn the_last_of_each_period_is_kept() {
        let policy = Policy { all: HOUR, hourly: 6 * HOUR, daily: 3 * DAY };
        let ages = [
            5 * DAY,
            2 * DAY - 5,
            2 * DAY - 9,
            4 * HOUR - 5,
            4 * HOUR - 9,
            3 * HOUR - 7,
            HOUR,
            30,
            20,
        ];
        let expected = [2 * DAY - 9, 4 * HOUR - 9, 3 * HOUR - 7, HOUR, 30, 20];
        assert_eq!(kept(policy, &ages), expected);
    }

    #[test]
    fn a_state_ends_when_the_policy_forgets_it() {
        let states = |times: &[u64]| -> Vec<State> {
            let numbered = (0..).zip(times);
            numbered.map(|(number, time)| State { number, time: *time }).collect()
        };
        let policy = Policy { all: HOUR, hourly: DAY, daily: 3 * DAY };
        let now = 1000 * DAY;
        // Two in one hour, one in the next hour, and the last one.
        let states = states(&[now, now + 60, now + HOUR, now + HOUR + 1]);
        // One of an hour stays when all of them are as old as that, then one of the day.
        let ends = [now + 60 + HOUR, now + HOUR + 1 + DAY, now + 2 * HOUR + 1].map(Some);
        assert_eq!(policy.ends(&states), [ends[0], ends[1], ends[2], None]);
    }

    #[test]
    fn the_last_state_is_always_kept() {
        let nothing = Policy { all: 0, hourly: 0, daily: 0 };
        assert_eq!(kept(nothing, &[900 * DAY, 800 * DAY]), [800 * DAY]);
        assert_eq!(kept(nothing, &[0, 0]), [0]);
    }

    #[test]
    fn many_flushes_leave_one_state_a_minute() {
        let ages: Vec<_> = (0..3000).rev().collect();
        let kept = kept(Policy::default(), &ages);
        assert!(kept.len() <= 52, "{}", kept.len());
        assert_eq!(kept.last(), Some(&0));
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for text in ["all=1h,hourly=1d,daily=30d", "all=90s,hourly=36h,daily=0s"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("daily=2w".parse::<Policy>().unwrap().daily, 14 * DAY);
        for text in ["all", "weekly=1h", "all=1y", "all=99999999999999999w"] {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
    }
}
