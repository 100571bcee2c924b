//! Tables with aligned columns, as btrfs-progs writes them.

use std::io::{self, Write};

/// A field of a table.
pub enum Cell {
    Left(String),
    Right(String),
    /// A line as wide as the column.
    Rule,
}

impl Cell {
    fn width(&self) -> usize {
        match self {
            Self::Left(text) | Self::Right(text) => text.chars().count(),
            Self::Rule => 0,
        }
    }
}

/// Writes rows, all of the same number of cells.
pub fn write_table(out: &mut impl Write, rows: &[Vec<Cell>]) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| match cell {
            Cell::Left(text) => format!("{text:<width$}"),
            Cell::Right(text) => format!("{text:>width$}"),
            Cell::Rule => "-".repeat(width),
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join(" "))?;
    }
    Ok(())
}
