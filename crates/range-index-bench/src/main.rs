//! Measures the range index beside other ordered maps, and prints tables.
//!
//! A separate program, not a benchmark target of the index: builds and tests of the index do not
//! compile the rivals, and counting memory needs a global allocator.

mod allocator;
mod clock;
mod extents;
mod maps;
mod memory;
mod node_size;
mod places;
mod read_write;
mod values;

use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::clock::{Clock, Run};

#[global_allocator]
static COUNTING: memory::Counting = memory::Counting;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Lookups and edits on all maps.
    ReadWrite,
    /// Claim, use, free in a nearly full space.
    Allocator,
    /// Bytes per entry.
    Memory,
    /// The range index with different numbers of keys per node.
    NodeSize,
    /// The range index with plain and with guarded values.
    Values,
    /// Pinned extents, dirty ranges, locked byte ranges and extents of a file, each on the index
    /// and on a simpler structure.
    Places,
}

/// Rows are maps, columns are threads.
#[derive(Parser)]
struct Arguments {
    /// What to measure.
    #[arg(value_enum, required = true)]
    tables: Vec<Table>,
    /// Entries in the map.
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000")]
    entries: Vec<u64>,
    /// Threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,16")]
    threads: Vec<usize>,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 0.05)]
    seconds: f64,
    /// Measurements per cell, in turns with those of the other maps; the best counts.
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// Percentages of edits among the operations.
    #[arg(long, value_delimiter = ',', default_value = "0,10,50")]
    writes: Vec<u32>,
    /// What a second is.
    #[arg(long, value_enum, default_value = "processor")]
    clock: Clock,
    /// Only the maps whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Leave out maps whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
}

impl Arguments {
    fn run(&self, threads: usize) -> Run {
        Run { threads, time: Duration::from_secs_f64(self.seconds), clock: self.clock }
    }

    fn wants(&self, name: &str) -> bool {
        name.contains(&self.only) && !self.without.iter().any(|part| name.contains(part))
    }
}

fn main() {
    let arguments = Arguments::parse();
    for table in &arguments.tables {
        match table {
            Table::ReadWrite => read_write::print(&arguments),
            Table::Allocator => allocator::print(&arguments),
            Table::Memory => memory::print(&arguments),
            Table::NodeSize => node_size::print(&arguments),
            Table::Values => values::print(&arguments),
            Table::Places => places::print(&arguments),
        }
    }
}
