//! Early release on more processors than this machine has.

use std::time::Instant;

use clap::Args;
use larder_btree::{LockAction, LockEvent, Right};

use crate::processors::{Costs, repeat};
use crate::trees::{TreeRun, record};
use crate::workload::early_release::sides;

/// Ablation: early release on processors that this machine does not have, by a model
///
/// Records which locks of tree blocks threads take to create files, and when, one thread at a time,
/// and repeats that on a model of as many processors as threads. Beside the model's figure for as
/// many as this machine has stands the measured one.
#[derive(Debug, Args)]
pub struct Processors {
    /// Files of all threads in the tree before
    #[arg(long, default_value_t = 100_000)]
    before: u64,
    /// Files of all threads to record
    #[arg(long, default_value_t = 20_000)]
    files: u64,
    /// Numbers of processors
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,12,24,64")]
    processors: Vec<u64>,
    /// Nanoseconds for a lock's cache line to come from another processor
    #[arg(long, default_value_t = 60)]
    transfer: u64,
    /// Nanoseconds that a thread spins
    #[arg(long, default_value_t = 2_000)]
    spin: u64,
    /// Nanoseconds until a woken thread runs
    #[arg(long, default_value_t = 5_000)]
    wakeup: u64,
}

impl Processors {
    pub fn run(self) -> anyhow::Result<()> {
        let Self { transfer, spin, wakeup, .. } = self;
        let costs = Costs { transfer, spin, wakeup, recording: recording_cost() };
        println!("{costs:?}");
        let here = std::thread::available_parallelism()?.get() as u64;
        println!(
            "{:10} {:20} {:>10} {:>8} {:>10} {:>10}",
            "processors", "early release", "creates/s", "as one", "blocked", "measured"
        );
        let mut alone = [None; 4];
        for &processors in &self.processors {
            for ((name, policy), alone) in sides().into_iter().zip(&mut alone) {
                let each = |files: u64| (files / processors).max(1);
                let recorded = record(policy, processors, each(self.before), each(self.files))?;
                let outcome = repeat(&recorded, costs);
                let alone = *alone.get_or_insert(outcome.rate());
                let measured = if processors <= here {
                    format!("{:10.0}", TreeRun::measure(policy, self.before, processors)?.rate())
                } else {
                    "-".into()
                };
                println!(
                    "{processors:10} {name:20} {:10.0} {:7.2}x {:10} {measured:>10}",
                    outcome.rate(),
                    outcome.rate() / alone,
                    outcome.blocked,
                );
            }
        }
        Ok(())
    }
}

/// Nanoseconds that noting one take or release of a lock costs.
fn recording_cost() -> u64 {
    const EVENTS: u64 = 10_000;
    let action = LockAction::Take(Right::Read);
    let mut events = Vec::with_capacity(EVENTS as usize);
    let since = Instant::now();
    events.extend((0..EVENTS).map(|_| LockEvent { at: Instant::now(), lock: 0, action }));
    since.elapsed().as_nanos() as u64 / std::hint::black_box(events).len() as u64
}
