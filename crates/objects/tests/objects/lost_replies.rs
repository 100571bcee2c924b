//! Every reply is lost once: each request arrives twice, and its sender sees the second reply.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::support::{MemoryStore, assert_sound, keys, opened};
use larder_device::Device;
use larder_objects::streams::{
    Begun, Catalogue, Description, Download, Name, Origin, Pace, Pruning, Upload, prune,
};
use larder_objects::{Layer, ObjectDevice, Options, Policy, Store, StoreError};

#[derive(Debug)]
struct Twice(MemoryStore);

impl Layer for Twice {
    type Below = MemoryStore;

    fn below(&self) -> &MemoryStore {
        &self.0
    }

    fn pass<T>(
        &self,
        _: &str,
        call: impl Fn(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _ = call(&self.0);
        call(&self.0)
    }
}

/// One that is not encrypted, and one that is.
fn stores() -> [Arc<dyn Store>; 2] {
    keys().map(|key| opened(Twice(MemoryStore::default()), key.as_ref()))
}

#[test]
fn a_device_is_made_and_written() {
    for store in stores() {
        make_and_write(&store);
    }
}

fn make_and_write(store: &Arc<dyn Store>) {
    ObjectDevice::create(&**store, 1 << 20, Policy::default(), 0).unwrap();
    for round in 0..4_u8 {
        let device = ObjectDevice::open_elsewhere(Arc::clone(store), &Options::default()).unwrap();
        let mut found = [0; 100];
        device.read_at(&mut found, 4096).unwrap();
        assert_eq!(found, [round; 100]);
        for _ in 0..3 {
            device.write_at(&[round + 1; 100], 4096).unwrap();
            device.flush().unwrap();
        }
        device.set_policy(Policy::default(), u64::from(round)).unwrap();
        device.collect_garbage(|_, _| ()).unwrap();
    }
    assert_sound(store);
}

#[test]
fn streams_are_sent_received_and_pruned() {
    for store in stores() {
        send_receive_and_prune(&store);
    }
}

fn send_receive_and_prune(store: &Arc<dyn Store>) {
    let pace = Pace { part_bytes: 100, at_once: 3 };
    for number in 0..3_u8 {
        let origin = Origin { uuid: [number; 16], ctransid: 1 };
        let description = Description {
            snapshot: origin,
            parent: None,
            clone_sources: Vec::new(),
            version: 1,
            is_compressed: false,
        };
        let name = Name::new(&[b'a' + number]).unwrap();
        let begun = Upload::begin(Arc::clone(store), &name, &description, pace).unwrap();
        let Begun::Upload(mut upload) = begun else { panic!("it is there") };
        upload.write_all(&[number; 1234]).unwrap();
        upload.finish().unwrap();
        let catalogue = Catalogue::load(&**store).unwrap();
        let stream = catalogue.streams.last().unwrap();
        let mut found = Vec::new();
        let mut download = Download::begin(Arc::clone(store), stream, 0, pace).unwrap();
        download.read_to_end(&mut found).unwrap();
        assert_eq!(found, [number; 1234]);
    }
    let pruned = prune(&**store, &Pruning::AllBut(1), 0, |_, _| ()).unwrap();
    assert_eq!(pruned.removed.len(), 2);
    assert_eq!(Catalogue::load(&**store).unwrap().streams.len(), 1);
}
