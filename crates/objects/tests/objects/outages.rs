//! Outages of hours and days, by a clock that the tests set: nothing is lost, and nobody has to
//! start anything again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use larder_device::{Device, MemoryDevice};
use larder_objects::{
    JournaledDevice, Layer, ObjectDevice, Options, Policy, Problem, Retrying, Store, StoreError,
    Timer, info,
};

use crate::support::{MemoryStore, error};

const BLOCK: u64 = 512;
const HOUR: Duration = Duration::from_secs(3600);

/// A store that is away until a time.
#[derive(Debug)]
struct Away {
    store: Arc<MemoryStore>,
    timer: Timer,
    until: AtomicU64,
    refusals: AtomicU64,
}

impl Away {
    fn new() -> Arc<Self> {
        let store = Arc::new(MemoryStore::default());
        ObjectDevice::create(&*store, 1 << 20, Policy::default(), 0).unwrap();
        let (until, refusals) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { store, timer: Timer::set_by_hand(), until, refusals })
    }

    fn go_for(&self, time: Duration) {
        self.until.store((self.timer.now() + time).as_secs(), Ordering::SeqCst);
    }

    fn is_away(&self) -> bool {
        self.timer.now().as_secs() < self.until.load(Ordering::SeqCst)
    }

    /// As somebody opens it who reaches it over a network.
    fn opened(self: &Arc<Self>) -> Arc<dyn Store> {
        Arc::new(Retrying::new(Arc::clone(self), Duration::from_secs(300)))
    }

    /// Lets time pass until `work` is done; the store's clock goes along.
    fn pass_time_during(&self, work: impl FnOnce() + Send) {
        thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                self.timer.advance(Duration::from_secs(10));
                self.store.set_clock(self.timer.now().as_secs());
                thread::sleep(Duration::from_micros(50));
            }
            working.join().unwrap();
        });
    }
}

impl Layer for Away {
    type Below = MemoryStore;

    fn below(&self) -> &MemoryStore {
        &self.store
    }

    fn pass<T>(
        &self,
        name: &str,
        call: impl Fn(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.is_away() {
            self.refusals.fetch_add(1, Ordering::SeqCst);
            return Err(error(Problem::Temporary, name));
        }
        call(&self.store)
    }

    fn timer(&self) -> Option<Timer> {
        Some(self.timer.clone())
    }
}

fn number_at(device: &dyn Device, block: u64) -> u64 {
    let mut bytes = [0; 8];
    device.read_at(&mut bytes, block * BLOCK).unwrap();
    u64::from_le_bytes(bytes)
}

fn put(device: &dyn Device, block: u64, number: u64) {
    device.write_at(&number.to_le_bytes().repeat(64), block * BLOCK).unwrap();
}

#[test]
fn a_writer_outlives_an_outage_of_an_hour_and_of_a_day() {
    for outage in [HOUR, 24 * HOUR] {
        let away = Away::new();
        let device = ObjectDevice::open_elsewhere(away.opened(), &Options::default()).unwrap();
        put(&device, 0, 1);
        device.flush().unwrap();
        away.go_for(outage);
        let began = away.timer.now();
        away.pass_time_during(|| {
            for number in 2..20 {
                put(&device, number, number);
                device.flush().unwrap();
            }
        });
        assert!(away.timer.now() >= began + outage);
        // Requests are repeated, and not too often.
        let refusals = away.refusals.load(Ordering::SeqCst);
        assert!((10..outage.as_secs()).contains(&refusals), "{refusals} refusals");
        assert_eq!(device.trouble(), None);
        for number in 2..20 {
            assert_eq!(number_at(&device, number), number);
        }
        away.pass_time_during(|| drop(device));
        let seen: Arc<dyn Store> = Arc::clone(&away.store) as _;
        assert!(info(&*seen).unwrap().is_closed);
        let reader = ObjectDevice::open_read_only(seen, None, &Options::default()).unwrap();
        assert_eq!(number_at(&reader, 19), 19);
    }
}

/// Nothing is idle for an hour: leases go on, and what is due is deleted.
#[test]
fn readers_and_writers_go_on_after_a_day() {
    let away = Away::new();
    let writer = ObjectDevice::open_elsewhere(away.opened(), &Options::default()).unwrap();
    put(&writer, 0, 1);
    writer.flush().unwrap();
    let reader = ObjectDevice::open_read_only(away.opened(), None, &Options::default()).unwrap();
    let (lease, leases) = (Duration::from_secs(600), || info(&*away.store).unwrap().leases.len());
    let pass = |time: Duration| {
        let end = away.timer.now() + time;
        away.pass_time_during(|| {
            while away.timer.now() < end {
                thread::sleep(Duration::from_millis(1));
            }
        });
    };
    pass(2 * lease);
    away.go_for(5 * HOUR);
    pass(6 * HOUR);
    for _ in 0..100 {
        if leases() > 0 {
            break;
        }
        pass(Duration::from_secs(60));
    }
    assert_eq!(leases(), 1, "the reader holds its state again");
    away.pass_time_during(|| {
        put(&writer, 0, 2);
        writer.flush().unwrap();
    });
    assert_eq!(number_at(&reader, 0), 1);
    away.pass_time_during(|| drop((reader, writer)));
}

#[test]
fn a_journal_takes_what_is_synced_in_a_day_without_the_store() {
    let away = Away::new();
    let disk = Arc::new(MemoryDevice::new("disk", 1 << 20));
    let open = JournaledDevice::open_elsewhere;
    let device = open(away.opened(), &Options::default(), disk).unwrap();
    away.go_for(24 * HOUR);
    // No time passes: nobody waits.
    for number in 1..100 {
        put(&device, number, number);
        device.flush().unwrap();
    }
    assert!(away.is_away());
    away.pass_time_during(|| device.wait_for_store().unwrap());
    away.pass_time_during(|| drop(device));
    let seen: Arc<dyn Store> = Arc::clone(&away.store) as _;
    let reader = ObjectDevice::open_read_only(seen, None, &Options::default()).unwrap();
    for number in 1..100 {
        assert_eq!(number_at(&reader, number), number);
    }
}
