//! A row for each program or call, a column for each side.

use std::time::Duration;

use crate::mounts::Side;

/// The best times, in the order in which rows were first added.
#[derive(Default)]
pub struct Table {
    rows: Vec<(&'static str, [Option<Duration>; Side::ALL.len()])>,
}

impl Table {
    /// Adds a time; the shortest of a row and a side counts.
    pub fn add(&mut self, name: &'static str, side: Side, time: Duration) {
        let at = self.rows.iter().position(|row| row.0 == name).unwrap_or_else(|| {
            self.rows.push((name, Default::default()));
            self.rows.len() - 1
        });
        let best = &mut self.rows[at].1[side as usize];
        *best = Some(best.map_or(time, |best| best.min(time)));
    }

    /// Prints the rows that `is_wanted` accepts, as a table in Markdown.
    pub fn print(&self, is_wanted: impl Fn(&str) -> bool) {
        println!("| work | {} |", Side::ALL.map(Side::name).join(" | "));
        println!("| --- |{}", " --- |".repeat(Side::ALL.len()));
        for (name, times) in self.rows.iter().filter(|row| is_wanted(row.0)) {
            let kernel = times[Side::Kernel as usize];
            let cells = Side::ALL.map(|side| cell(times[side as usize], kernel, side));
            println!("| {name} | {} |", cells.join(" | "));
        }
    }
}

fn cell(time: Option<Duration>, kernel: Option<Duration>, side: Side) -> String {
    let Some(time) = time else { return "-".into() };
    let amount = match time.as_secs_f64() {
        seconds if seconds < 1e-3 => format!("{:.1} us", seconds * 1e6),
        seconds => format!("{seconds:.2} s"),
    };
    match kernel {
        Some(kernel) if side != Side::Kernel => {
            format!("{amount}, {:.2}x", time.as_secs_f64() / kernel.as_secs_f64())
        }
        _ => amount,
    }
}
