//! Sides of a choice, measured in rounds.
//!
//! Each round runs every side once, and begins with another one than the round before: what changes
//! on the machine meanwhile changes all sides alike. Sides are compared round by round.

use std::fmt::{self, Display};

/// The rounds that a comparison makes by default.
pub const ROUNDS: usize = 15;

/// The results of all sides in all rounds.
pub struct Rounds<R> {
    /// By side, then by round.
    results: Vec<Vec<R>>,
}

impl<R> Rounds<R> {
    /// Runs `sides` in `rounds` rounds.
    ///
    /// # Errors
    ///
    /// The first error of a run.
    pub fn measure<S>(
        rounds: usize,
        sides: &[S],
        mut run: impl FnMut(&S) -> anyhow::Result<R>,
    ) -> anyhow::Result<Self> {
        let mut results: Vec<Vec<R>> = sides.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds.max(1) {
            for turn in 0..sides.len() {
                let side = (round + turn) % sides.len();
                results[side].push(run(&sides[side])?);
            }
        }
        Ok(Self { results })
    }

    /// The median of a value over the rounds of a side.
    pub fn median(&self, side: usize, value: impl Fn(&R) -> f64) -> f64 {
        sorted(self.results[side].iter().map(value))[self.results[side].len() / 2]
    }

    /// How many times as much of a value `side` has as `base`.
    pub fn ratio(&self, side: usize, base: usize, value: impl Fn(&R) -> f64) -> Ratio {
        let rounds = self.results[side].iter().zip(&self.results[base]);
        Ratio::of(rounds.map(|(side, base)| value(side) / value(base)))
    }
}

/// The ratio of two sides, and where it lies with 95 % confidence.
pub struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    fn of(ratios: impl Iterator<Item = f64>) -> Self {
        let ratios = sorted(ratios);
        let outside = outside(ratios.len());
        Self {
            median: ratios[ratios.len() / 2],
            low: ratios[outside],
            high: ratios[ratios.len() - 1 - outside],
        }
    }
}

impl Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, low, high } = self;
        let shown = if *low <= 1.0 && 1.0 <= *high {
            format!("no difference ({low:.2} to {high:.2})")
        } else {
            format!("{median:.2}x ({low:.2} to {high:.2})")
        };
        f.pad(&shown)
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// How many of `count` sorted values lie outside on each side, if the median lies between the
/// others in at least 95 of 100 cases: each value is above it or below it like a coin that falls.
fn outside(count: usize) -> usize {
    let mut exactly = 0.5f64.powi(count as i32);
    let mut at_most = exactly;
    let mut outside = 0;
    while 2.0 * at_most <= 0.05 {
        outside += 1;
        exactly *= (count - outside + 1) as f64 / outside as f64;
        at_most += exactly;
    }
    // With `outside` tails or fewer the median is outside; the last one counted was one too many.
    outside.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranks that tables of the sign test give.
    #[test]
    fn the_median_lies_between_the_ranks_of_the_sign_test() {
        for (count, rank) in [(1, 1), (5, 1), (6, 1), (8, 1), (9, 2), (15, 4), (20, 6), (25, 8)] {
            assert_eq!(outside(count) + 1, rank, "{count} pairs");
        }
    }

    #[test]
    fn what_covers_one_is_no_difference() {
        assert_eq!(
            Ratio::of([0.5, 2.0, 1.5].into_iter()).to_string(),
            "no difference (0.50 to 2.00)"
        );
        let clear = (0..15).map(|round| 1.5 + f64::from(round) / 100.0);
        assert_eq!(Ratio::of(clear).to_string(), "1.57x (1.53 to 1.61)");
    }

    #[test]
    fn each_side_begins_in_turn() {
        let mut order = Vec::new();
        let rounds = Rounds::measure(2, &['a', 'b'], |side| {
            order.push(*side);
            Ok(if *side == 'a' { 1.0 } else { 2.0 })
        });
        assert_eq!(order, ['a', 'b', 'b', 'a']);
        let ratio = rounds.unwrap().ratio(1, 0, |value| *value);
        assert_eq!(ratio.to_string(), "2.00x (2.00 to 2.00)");
    }
}
