//! A large file on object storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use clap::Args;
use larder::OpenOptions;
use larder_device::Device;
use larder_objects::{
    Address, Directory, Layer, ObjectDevice, Options, Policy, Problem, Requests, Retrying,
    Settings, Store, StoreError,
};
use larder_testkit::Scratch;
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::measure::own_peak_bytes;

/// Bytes of one raw request, which are those of a segment.
const OBJECT_BYTES: u64 = 8 << 20;

/// Raw requests at once, as many as the device makes.
const PUTS_AT_ONCE: u64 = 6;
const GETS_AT_ONCE: u64 = 8;

/// Bytes of one call.
const CALL_BYTES: usize = 1 << 20;

/// Repeating a request ends after this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Write and read a large file on object storage, against PUTs and GETs of 8 MiB of the same content
///
/// Once at the speed of the store, and once with a delay and errors added to each request. Both
/// sides take turns; prints the medians in MB/s. Without --url the store is a directory on tmpfs.
#[derive(Debug, Args)]
pub struct Objects {
    /// MiB to write
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// An empty place in a bucket, for the file and for the raw objects
    #[arg(long, value_name = "URL")]
    url: Option<Address>,
    /// Milliseconds added to each request in the second run
    #[arg(long, default_value_t = 30)]
    delay: u64,
    /// Of a hundred requests in the second run, so many fail
    #[arg(long, default_value_t = 1)]
    errors: u64,
    /// How often each side has its turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Seconds to write and to read.
struct Times {
    write: Duration,
    read: Duration,
}

impl Times {
    fn write(&self) -> Duration {
        self.write
    }

    fn read(&self) -> Duration {
        self.read
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn remove_all(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    for listed in store.list("")? {
        store.delete(&listed.name)?;
    }
    Ok(())
}

impl Objects {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let delay = Duration::from_millis(self.delay);
        let troubles = [(Duration::ZERO, 0), (delay, self.errors)];
        println!("| store | work | raw | larder | as fast |");
        println!("| --- | --- | --- | --- | --- |");
        for (index, (delay, errors)) in troubles.into_iter().enumerate() {
            let store = |folder: &str| -> anyhow::Result<Arc<dyn Store>> {
                let store: Arc<dyn Store> = match &self.url {
                    Some(url) => url.below(folder).store(&Settings::from_environment()?)?,
                    None => Arc::new(Directory::new(scratch.path().join(folder))),
                };
                Ok(Arc::new(Retrying::new(Slow::new(store, delay, errors), PATIENCE)))
            };
            let (mut theirs, mut ours) = (Vec::new(), Vec::new());
            let mut requests = Requests::default();
            for round in 0..self.rounds {
                let name = |part: &str| format!("{part}-{index}-{round}");
                let raw = store(&name("raw"))?;
                theirs.push(self.raw(&raw)?);
                remove_all(&raw)?;
                let larder = store(&name("larder"))?;
                let times;
                (times, requests) = self.by_larder(&larder)?;
                ours.push(times);
                remove_all(&larder)?;
            }
            let name = if index == 0 {
                "as it is".to_owned()
            } else {
                format!("{} ms, {errors} % errors", delay.as_millis())
            };
            for (work, of) in [("write", Times::write as fn(&_) -> _), ("read", Times::read)] {
                let rate = |times: &[Times]| {
                    let time = median(times.iter().map(of).collect());
                    (self.mib << 20) as f64 / time.as_secs_f64() / 1e6
                };
                let (theirs, ours) = (rate(&theirs), rate(&ours));
                let ratio = ours / theirs;
                println!("| {name} | {work} | {theirs:.0} MB/s | {ours:.0} MB/s | {ratio:.2}x |");
            }
            println!("larder's requests to read: {requests}");
        }
        println!("peak memory of this process: {} MiB", own_peak_bytes() >> 20);
        Ok(())
    }

    fn raw(&self, store: &Arc<dyn Store>) -> anyhow::Result<Times> {
        let objects = (self.mib << 20).div_ceil(OBJECT_BYTES);
        let content = Bytes::from(random(OBJECT_BYTES as usize, 0));
        let name = |number| format!("raw/{number}");
        let since = Instant::now();
        at_once(PUTS_AT_ONCE, objects, |number| store.create(&name(number), content.clone()))?;
        let write = since.elapsed();
        let since = Instant::now();
        at_once(GETS_AT_ONCE, objects, |number| {
            store.get(&name(number), 0..OBJECT_BYTES).map(|_| ())
        })?;
        Ok(Times { write, read: since.elapsed() })
    }

    fn by_larder(&self, store: &Arc<dyn Store>) -> anyhow::Result<(Times, Requests)> {
        let size = (self.mib << 20) * 2 + (1 << 30);
        ObjectDevice::create(&**store, size, Policy::default(), 3600)?;
        let device: Arc<dyn Device> =
            Arc::new(ObjectDevice::open(Arc::clone(store), &Options::default())?);
        larder::mkfs::mkfs_on(&[Arc::clone(&device)], &larder::mkfs::MkfsOptions::default())?;
        let filesystem = OpenOptions::new().write(true).open_devices(vec![device])?;
        let data = random(CALL_BYTES, 1);
        let since = Instant::now();
        let file = filesystem.subvolume("/")?.create("written", 0o644)?;
        for call in 0..self.mib {
            file.write_at(&data, call * CALL_BYTES as u64)?;
        }
        file.sync()?;
        let write = since.elapsed();
        drop((file, filesystem));
        let device =
            Arc::new(ObjectDevice::open_read_only(Arc::clone(store), None, &Options::default())?);
        let filesystem = OpenOptions::new().open_devices(vec![Arc::clone(&device) as _])?;
        let since = Instant::now();
        let file = filesystem.subvolume("/")?.open_file("written")?;
        let mut found = vec![0; CALL_BYTES];
        for call in 0..self.mib {
            file.read_at(&mut found, call * CALL_BYTES as u64)?;
            let ends = |bytes: &[u8]| (bytes[0], bytes[CALL_BYTES - 1]);
            ensure!(ends(&found) == ends(&data), "call {call} reads something else");
        }
        Ok((Times { write, read: since.elapsed() }, device.requests()))
    }
}

fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SmallRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

/// Calls `work` with the numbers below `count`, `threads` at a time.
fn at_once(
    threads: u64,
    count: u64,
    work: impl Fn(u64) -> Result<(), StoreError> + Sync,
) -> anyhow::Result<()> {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let run = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<(), StoreError>(());
                }
                work(number)?;
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
    .map_err(anyhow::Error::from)
}

/// A store far away: each request takes longer, and some fail.
#[derive(Debug)]
struct Slow<S> {
    store: S,
    delay: Duration,
    errors: u64,
    requests: AtomicU64,
}

impl<S: Store> Slow<S> {
    fn new(store: S, delay: Duration, errors: u64) -> Self {
        Self { store, delay, errors, requests: AtomicU64::new(0) }
    }
}

impl<S: Store> Layer for Slow<S> {
    type Below = S;

    fn below(&self) -> &S {
        &self.store
    }

    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&S) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        thread::sleep(self.delay);
        // Spread evenly, so that each run has as many.
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let is_lost = number * self.errors % 100 + self.errors >= 100 && self.errors > 0;
        if is_lost {
            let object = format!("{}/{name}", self.store.name());
            let source = "it was lost on the way".into();
            return Err(StoreError { problem: Problem::Temporary, object, source });
        }
        call(&self.store)
    }
}
