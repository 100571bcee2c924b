//! How users name a state.

use std::fmt;
use std::str::FromStr;

use crate::clock;
use crate::quantity::parse_seconds;
use crate::states::State;

/// Which state is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateName {
    /// The one with this number.
    Number(u64),
    /// The last one that was made by this time, in seconds since 1970.
    Time(u64),
}

impl StateName {
    /// The state among `states`, which are sorted.
    pub(crate) fn find(&self, states: &[State]) -> Option<State> {
        let find = |is_it: &dyn Fn(&&State) -> bool| states.iter().rev().find(is_it).copied();
        match self {
            Self::Number(number) => find(&|state| state.number == *number),
            Self::Time(time) => find(&|state| state.time <= *time),
        }
    }
}

impl FromStr for StateName {
    type Err = String;

    /// Reads a number, `yesterday`, an age (`3h`, `2d`) or a time (`2026-11-24`,
    /// `2026-11-24T16:00`), in the system's time zone.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.parse() {
            return Ok(Self::Number(number));
        }
        let ago = |seconds| Self::Time(clock::now().saturating_sub(seconds));
        if text == "yesterday" {
            return Ok(ago(24 * 60 * 60));
        }
        if let Ok(seconds) = parse_seconds(text) {
            return Ok(ago(seconds));
        }
        clock::parse(text).map(Self::Time).ok_or_else(|| {
            format!(
                "'{text}' is no state: not a number, yesterday, an age (3h) or a time \
                 (2026-11-24T16:00)"
            )
        })
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(time) => write!(f, "at {time} s since 1970"),
        }
    }
}
