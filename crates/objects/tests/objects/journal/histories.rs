//! What a flush has promised is there after crashes and power cuts, and never goes on top of what
//! another writer has written: by random histories.

use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_objects::{JournaledDevice, ObjectDevice, ObjectsError, Options, Store};
use larder_test_devices::{Recording, Survival};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{BLOCK_BYTES, BLOCKS, Image, create, options, put, read};
use crate::support::{MemoryStore, Network, Persistent, assert_sound, explore, histories};

/// A machine with a journal, and what a crash of it may leave.
struct History {
    rng: StdRng,
    store: Arc<MemoryStore>,
    disk: MemoryDevice,
    running: Option<Running>,
    /// What the device may have after a crash.
    possible: Vec<Image>,
    /// What the store alone may have.
    stored: Vec<Image>,
    /// Another machine has written what the journal's flushes do not follow.
    is_superseded: bool,
    /// Another machine has written since the last opening with the journal.
    has_other: bool,
    next: u64,
}

struct Running {
    device: JournaledDevice,
    recording: Recording,
    network: Arc<Network>,
    now: Image,
    is_fenced: bool,
    has_failed: bool,
    has_unflushed: bool,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let store = Arc::new(MemoryStore::default());
        create(&*store);
        let zeros = vec![0; BLOCKS as usize];
        let disk = MemoryDevice::new("disk", rng.random_range(20..80) << 10);
        Self {
            rng,
            store,
            disk,
            running: None,
            possible: vec![zeros.clone()],
            stored: vec![zeros],
            is_superseded: false,
            has_other: false,
            next: 1,
        }
    }

    fn options(&mut self) -> Options {
        Options {
            cache_bytes: self.rng.random_range(0..8) << 10,
            segment_bytes: self.rng.random_range(1..8) << 10,
            most_ranges: self.rng.random_range(1..20),
            most_flushes: self.rng.random_range(1..12),
            ..options()
        }
    }

    /// The machine starts again.
    fn open(&mut self) {
        let trouble = if self.rng.random_bool(0.6) { 0.0 } else { 0.1 };
        let network = Network::new(Arc::clone(&self.store), self.rng.random(), trouble);
        let network = Arc::new(network);
        if self.rng.random_bool(0.3) {
            network.cut_after(self.rng.random_range(1..40));
        }
        let recording = Recording::new();
        let disk = recording.attach(&self.disk);
        let store = Arc::new(Persistent(Arc::clone(&network)));
        let options = self.options();
        match JournaledDevice::open_elsewhere(store, &options, Arc::new(disk)) {
            Ok(device) => {
                assert!(
                    !self.is_superseded,
                    "the journal is used on top of another writer's state"
                );
                let Ok(now) = read(&device) else {
                    drop(device);
                    return self.take_disk(&recording);
                };
                assert!(self.possible.contains(&now), "{now:?}: {:?}", self.possible);
                self.has_other = false;
                self.possible = vec![now.clone()];
                self.stored.push(now.clone());
                self.running = Some(Running {
                    device,
                    recording,
                    network,
                    now,
                    is_fenced: false,
                    has_failed: false,
                    has_unflushed: false,
                });
            }
            Err(ObjectsError::Superseded { .. }) => {
                // The store may have all that is in it: the header was not written in time.
                assert!(self.has_other, "nobody else has written");
                // The user gives it up.
                self.disk = MemoryDevice::new("disk", self.disk.len_bytes());
                self.is_superseded = false;
                self.possible.clone_from(&self.stored);
            }
            Err(error) => {
                assert!(network.may_fail(), "{error}");
                network.calm();
                self.take_disk(&recording);
            }
        }
    }

    /// The disk stays as it is after a process ended, or as a power cut leaves it.
    fn take_disk(&mut self, recording: &Recording) {
        let mut replay = recording.replay();
        replay.advance_to(usize::MAX);
        let rng = &mut self.rng;
        let is_cut = rng.random_bool(0.5);
        let mut images = replay.power_cut(|_, _| match rng.random_range(0..3) {
            _ if !is_cut => Survival::Whole,
            0 => Survival::Whole,
            1 => Survival::Lost,
            _ => Survival::Torn { sectors: rng.random_range(0..6) },
        });
        self.disk = images.remove(0);
    }

    /// The machine ends, in good order or not.
    fn end(&mut self) {
        let Some(running) = self.running.take() else { return };
        let Running { device, recording, network, now, .. } = running;
        if self.rng.random_bool(0.7) {
            network.cut_after(self.rng.random_range(0..6));
        }
        // Closing flushes.
        self.possible.push(now.clone());
        self.stored.push(now);
        drop(device);
        if self.rng.random_bool(0.5) {
            network.calm();
        }
        self.take_disk(&recording);
    }

    /// Another machine mounts it, without the journal, and writes.
    fn take_over(&mut self) {
        let options = self.options();
        let store: Arc<dyn Store> = Arc::clone(&self.store) as _;
        let device = ObjectDevice::open_elsewhere(store, &options).unwrap();
        let mut now = read(&device).unwrap();
        assert!(self.stored.contains(&now), "the store has what no flush made");
        if let Some(running) = &mut self.running {
            running.is_fenced = true;
        }
        self.has_other = true;
        // It may be that the journal had nothing more.
        self.is_superseded |= !self.possible.contains(&now);
        for _ in 0..self.rng.random_range(0..4) {
            let block = self.rng.random_range(0..BLOCKS);
            put(&device, block, self.next);
            now[block as usize] = self.next;
            self.next += 1;
            device.flush().unwrap();
        }
        drop(device);
        self.stored = vec![now.clone()];
        if !self.is_superseded {
            self.possible = vec![now];
        }
    }

    fn step(&mut self) {
        if self.running.is_none() {
            return if self.rng.random_bool(0.2) { self.take_over() } else { self.open() };
        }
        match self.rng.random_range(0..100) {
            0..4 => return self.end(),
            4 => return self.take_over(),
            _ => {}
        }
        let (rng, running) = (&mut self.rng, self.running.as_mut().unwrap());
        let first = rng.random_range(0..BLOCKS);
        let count = rng.random_range(1..=(BLOCKS - first).min(6));
        let (offset, len) = (first * BLOCK_BYTES, count * BLOCK_BYTES);
        let blocks = first as usize..(first + count) as usize;
        match rng.random_range(0..12) {
            0..6 => {
                running.has_unflushed = true;
                let bytes = self.next.to_le_bytes().repeat(len as usize / 8);
                match running.device.write_at(&bytes, offset) {
                    Ok(()) => running.now[blocks].fill(self.next),
                    Err(_) => running.has_failed = true,
                }
                self.next += 1;
            }
            6 => {
                running.has_unflushed = true;
                match running.device.discard(offset, len) {
                    Ok(()) => running.now[blocks].fill(0),
                    Err(_) => running.has_failed = true,
                }
            }
            7..10 => {
                if running.is_fenced {
                    // What it promises is in the journal alone.
                    if running.device.flush().is_ok()
                        && std::mem::take(&mut running.has_unflushed)
                        && !self.possible.contains(&running.now)
                    {
                        self.is_superseded = true;
                        self.possible = vec![running.now.clone()];
                    }
                    return;
                }
                self.stored.push(running.now.clone());
                self.possible.push(running.now.clone());
                match running.device.flush() {
                    Ok(()) => {
                        running.has_unflushed = false;
                        self.possible = vec![running.now.clone()];
                    }
                    Err(_) => running.has_failed = true,
                }
            }
            10 => match read(&running.device) {
                Ok(image) if running.has_failed => drop(image),
                Ok(image) => assert_eq!(image, running.now),
                Err(_) => assert!(running.is_fenced || running.network.may_fail()),
            },
            _ => {
                if running.device.wait_for_store().is_ok()
                    && !running.is_fenced
                    && !running.has_failed
                {
                    self.stored.clone_from(&self.possible);
                }
            }
        }
    }

    fn finish(mut self) {
        self.end();
        for _ in 0..20 {
            self.open();
            if let Some(running) = self.running.take() {
                running.network.calm();
                drop(running.device);
                break;
            }
        }
        let store: Arc<dyn Store> = Arc::clone(&self.store) as _;
        assert_sound(&store);
    }
}

#[test]
fn every_history_with_a_journal_ends_with_a_state_that_a_flush_made() {
    explore(histories::WITH_A_JOURNAL, |seed| {
        let mut history = History::new(seed);
        let steps = history.rng.random_range(5..if seed % 4 == 0 { 150 } else { 50 });
        (0..steps).for_each(|_| history.step());
        history.finish();
    });
}
